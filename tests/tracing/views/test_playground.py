"""The playground: its model takes the steps of minidl's loader, and its page, in a real browser, shows what it says.
(tests/docs compares docs/playground.html with it.)"""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import pytest

from tests.tracing.views.browser import OpenPage, Page
from tests.tracing.views.playground_world import compare, random_setting
from tracing.views.html_page import file_text
from tracing.views.playground.page import render

MODEL = file_text("tracing.views.playground", "model.js")
SETTINGS = [random_setting(random.Random(seed)) for seed in range(30)]
ALL = "[...document.querySelectorAll('{}')].filter((each) => {}).map((each) => each.outerHTML.slice(0, 80))"


@pytest.fixture
def open_page(open_html: OpenPage) -> OpenPage:
    """Opens the page."""
    return functools.partial(open_html, render())


# ---- the model


def test_the_model_takes_the_loaders_steps_in_the_same_order_at_the_same_times(open_html: OpenPage):
    page = open_html(f"<!doctype html><link rel='icon' href='data:,'><script>{MODEL}</script>")
    for setting in SETTINGS:  # many things happen at the same time in them: so the rule for ties is compared, too
        compare(page, setting)


# Each queue, with what comes into it, and what leaves it.
WAYS = {
    "index": ("PUT INDEX", "GOT INDEX"), "result": ("SENT RESULT", "ARRIVED RESULT"), "data": ("PUT DATA", "GOT DATA"),
    "reorder": ("STORED", "RELEASED"),
}  # fmt: skip


def test_the_numbers_and_the_queues_are_those_of_the_events(open_page: OpenPage):
    page = open_page()
    script = """((setting) => {
      const run = makeRun(setting), times = run.times.filter((_, at) => at % 20 === 0);
      return [run, times.map((time) => [time, run.histories.map((history) => placeOf(history, time)?.[0])])];
    })"""
    for setting in SETTINGS:
        run, moments = page.evaluate(f"{script}({json.dumps(setting)})")
        events, end = run["events"], run["events"][-1][0]
        asked, yielded = ([at for at, each, *_ in events if each == kind] for kind in ("ASKED", "YIELDED"))
        assert run["rate"] == pytest.approx(setting["batches"] / (end / 10_000) if end else 0)
        assert run["waits"] + run["unpacks"] == pytest.approx((sum(yielded) - sum(asked[:-1])) / end if end else 1)
        for time, places in moments:
            kinds = [kind for at, kind, *_ in events if at <= time]
            for queue, (enter, leave) in WAYS.items():
                assert places.count(queue) == kinds.count(enter) - kinds.count(leave), (setting, time, queue)


# ---- the page


def shown(page: Page) -> dict[str, Any]:
    """The setting as the controls show it."""
    read = "ALL.map(([name]) => [name, $(name).type === 'checkbox' ? $(name).checked : $(name).value])"
    return dict(page.evaluate(read))


def now(page: Page) -> float:
    return float(page.evaluate("$('scrub').value"))


def drawn(page: Page) -> str:
    """The picture, after the next frame."""
    return page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done($('picture').toDataURL()))))"
    )


def test_every_story_is_told_and_its_changes_do_what_it_says(open_page: OpenPage):
    page = open_page()
    script = "((its) => { const { rate, peak } = makeRun(sane({ ...DEFAULTS, ...its })); return [rate, peak]; })"
    pictures = set()
    for story in page.evaluate("STORIES"):
        page.click(f"#choices [data-id='{story['id']}']")
        assert page.read("story") == story["text"]
        before = page.read("summary")
        rate, peak = page.evaluate(f"{script}({json.dumps(story['setting'])})")
        assert before.startswith(f"{rate:.1f} batches a second")
        pictures.add(drawn(page))
        for number, change in enumerate(story["tries"], start=1):
            page.click(f"#tries button:nth-of-type({number})")
            other, most = page.evaluate(f"{script}({json.dumps({**story['setting'], **change['change']})})")
            assert page.read("summary").startswith(f"{other:.1f} batches a second")
            does = {"faster": other > 1.1 * rate, "same": abs(other / rate - 1) < 0.01}
            does |= {"more": most > peak, "less": most < peak}
            assert all(does[gain] for gain in change["gain"]), (story["id"], change, rate, other, peak, most)
            page.click(f"#tries button:nth-of-type({number})")  # and back
            assert page.read("summary") == before
    assert len(pictures) == 6


def test_every_control_changes_the_setting_and_the_numbers(open_page: OpenPage):
    """By real keys. Each begins with a setting in which it matters."""
    page = open_page()
    matters = {
        "in_order": "#shape=slow_worker", "every": "#shape=slow_sample&train=5", "factor": "#shape=slow_worker",
        "pinning": "#pin=1&pinning=12&move=5", "pin": "#move=8",
    }  # fmt: skip
    for name in page.evaluate("ALL.map(([name]) => name)"):
        link = matters.get(name, "#prefetch=1&shape=varied&sample=16")
        page.evaluate(f"location.hash = {link!r}; new Promise((done) => setTimeout(done))")
        before, words = shown(page), page.read("summary")
        page.evaluate(f"$({name!r}).focus()")
        key = {"checkbox": " ", "range": "ArrowRight", "select-one": "ArrowDown"}[page.evaluate(f"$({name!r}).type")]
        for _ in range(3 if key == "ArrowRight" else 1):
            page.press(key)
        after = shown(page)
        assert {each for each in after if after[each] != before[each]} == {name}
        assert page.read("summary") != words, name


def test_a_link_keeps_the_setting(open_page: OpenPage):
    asked = {"workers": "7", "in_order": False, "shape": "slow_worker", "sample": "12.5"}
    page = open_page("#workers=7&in_order=0&shape=slow_worker&sample=12.5&pin=1")
    assert shown(page) == shown(page) | asked
    page.evaluate("$('train').focus()")
    page.press("ArrowRight")
    changed, link = (shown(page), page.read("summary")), page.evaluate("location.hash")
    page = open_page(link)
    assert (shown(page), page.read("summary")) == changed
    page = open_page("#workers=999&prefetch=x&shape=__proto__&in_order=maybe&sample=&train=-3&nonsense=1")
    sane = {"workers": "16", "train": "0", "in_order": False, "prefetch": "2", "shape": "constant", "sample": "10"}
    assert shown(page) == shown(page) | sane


def test_keys_move_through_time(open_page: OpenPage):
    page = open_page("#workers=2&shape=varied")
    times, pictures = page.evaluate("run.times"), []
    right, left = "ArrowRight", "ArrowLeft"
    for key, at in [("Home", 0), (right, 1), (right, 2), (left, 1), ("End", -1), (left, -2)]:
        page.press(key)
        assert now(page) == times[at], key
        pictures.append(drawn(page))
        assert page.read("sentence").startswith(f"At {times[at] / 10:.1f} ms")
    assert pictures[1] == pictures[3] and len(set(pictures)) == 5
    for key in ("?", "Home"):  # the page behind the help stays as it is
        page.press(key)
    assert page.evaluate("$('help').open") is True and now(page) == times[-2]


def test_play_goes_on_with_time_and_stops_at_the_end(open_page: OpenPage):
    label = "$('play').ariaLabel"
    assert open_page("#workers=2").evaluate(label) == "Play"  # still, for a reader who prefers that
    page = open_page("#workers=2", still=False)
    assert page.evaluate(label) == "Pause"  # it plays by itself
    page.wait_until("now > 0")
    page.press(" ")
    held = now(page)
    drawn(page)
    assert page.evaluate(label) == "Play" and now(page) == held > 0
    page.evaluate("go(run.end - 1), play(true)")
    page.wait_until("!playing")
    assert now(page) == page.evaluate("run.end") and page.evaluate(label) == "Play"


def test_each_control_has_a_name_and_what_changes_is_read_out(open_page: OpenPage):
    """For readers who use a screen reader."""
    page = open_page()
    drawn(page)
    nodes = [each for each in page.call("Accessibility.getFullAXTree")["nodes"] if "name" in each]
    of = [(each, each["role"]["value"], each["name"]["value"]) for each in nodes if not each["ignored"]]
    roles = {"button", "slider", "checkbox", "combobox"}
    named = [(role, name) for _, role, name in of if role in roles]
    assert all(name for _, name in named) and len(set(named)) == len(named) > 25
    (picture,) = (each for each, role, name in of if role == "image" and name.startswith("The lanes"))
    assert picture["description"]["value"] == page.read("sentence") != ""
    assert page.evaluate("[$('summary').getAttribute('role'), $('sentence').ariaLive]") == ["status", "polite"]


@pytest.mark.parametrize("link", ["", "#workers=16&prefetch=8&pin=1&shape=slow_worker"])
def test_nothing_is_wider_than_the_screen(link: str, open_page: OpenPage):
    page = open_page(link)
    for width in (360, 700, 1280):
        page.resize(width, 740)
        drawn(page)
        assert page.evaluate(ALL.format("body *", f"each.getBoundingClientRect().right > {width + 0.5}")) == []
        squeezed = "each.clientWidth && each.scrollWidth > each.clientWidth + 1"
        assert page.evaluate(ALL.format("button, label, dt, dd, legend", squeezed)) == []
