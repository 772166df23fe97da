"""The playground: its model takes the steps of minidl's loader, and its page, in a real browser, shows what it says."""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tracing.views.browser import Page
from tests.tracing.views.playground_world import compare, random_setting
from tracing.views.html_page import file_text
from tracing.views.playground.page import render

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).parents[3]
MODEL = file_text("tracing.views.playground", "model.js")
SETTINGS = [random_setting(random.Random(seed)) for seed in range(30)]
ALL = "[...document.querySelectorAll('{}')].filter((each) => {}).map((each) => each.outerHTML.slice(0, 80))"
OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(open_html: OpenPage) -> OpenPage:
    """Opens the page."""
    return functools.partial(open_html, render())


# ---- the model


def test_the_model_takes_the_loaders_steps_in_the_same_order_at_the_same_times(open_html: OpenPage):
    page = open_html(f"<!doctype html><link rel='icon' href='data:,'><script>{MODEL}</script>")
    ties = sum(compare(page, setting) for setting in SETTINGS)
    assert ties > 500  # so the rule for ties is compared, too


def places(events: list[list[Any]], time: int) -> dict[str, list[int]]:
    """What the queues hold once everything has happened that happens at this time, by puts and gets alone."""
    ways = {
        "PUT INDEX": ("", "index"), "GOT INDEX": ("index", ""), "SENT RESULT": ("", "result"),
        "ARRIVED RESULT": ("result", ""), "PUT DATA": ("", "data"), "GOT DATA": ("data", ""),
        "STORED": ("", "reorder"), "RELEASED": ("reorder", ""),
    }  # fmt: skip
    held: dict[str, set[tuple[int, int]]] = {"index": set(), "result": set(), "data": set(), "reorder": set()}
    makers: dict[int, int] = {}
    for at, kind, task, worker in events:
        if at > time:
            break
        if worker >= 0:
            makers[task] = worker
        source, target = ways.get(kind, ("", ""))
        of = makers.get(task, -1) if (source or target) in ("index", "result") else 0
        if source:
            held[source].remove((task, of))
        if target:
            held[target].add((task, of))
    pairs = [(name, of, tasks) for name, tasks in held.items() for of in {of for _, of in tasks}]
    return {f"{name} {of}": sorted(task for task, its in tasks if its == of) for name, of, tasks in pairs}


def test_what_is_drawn_in_the_queues_is_what_the_events_put_there(open_page: OpenPage):
    page, seen, drawn_in = open_page(), set[str](), {"index", "result", "data", "reorder"}
    script = """((setting, times) => { const run = makeRun(setting); return [run.events, times.map((share) => {
      const time = run.times[Math.floor(share * (run.times.length - 1))], found = {};
      for (const history of run.histories) { const [name, of] = placeOf(history, time) ?? ["nowhere", 0];
        (found[`${name} ${of}`] ??= []).push(history.task); }
      return [time, found]; })]; })"""
    for setting in SETTINGS:
        shares = [number / 12 for number in range(13)]
        events, moments = page.evaluate(f"{script}({json.dumps(setting)}, {shares})")
        for time, found in moments:
            queues = {name: tasks for name, tasks in found.items() if name.split()[0] in drawn_in}
            assert queues == places(events, time), (setting, time)
            seen |= {name.split()[0] for name in queues}
    assert seen == drawn_in


def test_the_numbers_are_those_of_the_events(open_page: OpenPage):
    page = open_page()
    for setting in SETTINGS:
        run = page.evaluate(f"makeRun({json.dumps(setting)})")
        events, end = run["events"], run["events"][-1][0]
        asked, yielded = ([at for at, each, *_ in events if each == kind] for kind in ("ASKED", "YIELDED"))
        assert run["rate"] == pytest.approx(setting["batches"] / (end / 10_000) if end else 0)
        assert run["waits"] + run["unpacks"] == pytest.approx((sum(yielded) - sum(asked[:-1])) / end if end else 1)
        held = most = 0
        for _, kind, *_ in sorted(events, key=lambda event: (event[0], event[1] != "YIELDED")):
            held += (kind == "COLLATE_END") - (kind == "YIELDED")
            most = max(most, held + 1)
        assert most - 1 <= run["peak"] <= most, setting  # one more while main has one in its variable


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


def test_the_page_in_docs_is_what_the_command_makes_and_needs_nothing_but_itself():
    html = render()
    assert (ROOT / "docs" / "playground.html").read_text(encoding="utf-8") == html, "run `make docs`"
    assert re.findall(r"""\b(?:src|href)=["']?([^"'\s>]*)""", html) == ["data:,", "#"]
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttpRequest|import\(", html)
    assert len(html.encode()) < 100_000


def test_every_story_is_told_and_its_changes_do_what_it_says(open_page: OpenPage):
    page = open_page()
    stories = page.evaluate("STORIES")
    script = "((its) => { const { rate, peak } = makeRun(sane({ ...DEFAULTS, ...its })); return [rate, peak]; })"
    pictures = set()
    for story in stories:
        page.click(f"#choices [data-id='{story['id']}']")
        assert page.read("story") == story["text"]
        assert page.evaluate("[...$('choices').children].filter((each) => each.ariaPressed === 'true').length") == 1
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
    assert len(pictures) == len(stories) > 4


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
        assert now(page) <= float(page.evaluate("$('scrub').max"))


def test_a_link_keeps_the_setting(open_page: OpenPage):
    page = open_page("#workers=7&in_order=0&shape=slow_worker&sample=12.5&pin=1")
    before, words = shown(page), page.read("summary")
    asked = {"workers": "7", "in_order": False, "shape": "slow_worker", "sample": "12.5"}
    assert {name: before[name] for name in asked} == asked
    page.evaluate("$('train').focus()")
    page.press("ArrowRight")
    changed, other, link = shown(page), page.read("summary"), page.evaluate("location.hash")
    assert link == page.evaluate("$('link').hash") and other != words
    page = open_page(link)
    assert (shown(page), page.read("summary")) == (changed, other)
    page = open_page("#workers=999&prefetch=x&shape=__proto__&in_order=maybe&sample=&train=-3&nonsense=1")
    assert shown(page) | {"workers": "16", "train": "0", "in_order": False} == shown(page)
    assert shown(page)["prefetch"] == "2" and shown(page)["shape"] == "constant" and shown(page)["sample"] == "10"


def test_keys_move_through_time(open_page: OpenPage):
    page = open_page("#workers=2&shape=varied")
    times = page.evaluate("run.times")
    page.press("Home")
    pictures = [drawn(page)]
    right, left = "ArrowRight", "ArrowLeft"
    for key, at in ((right, 1), (right, 2), (right, 3), (left, 2), ("End", -1), (left, -2)):
        page.press(key)
        assert now(page) == times[at], key
        pictures.append(drawn(page))
        assert page.read("sentence").startswith("At ")
    assert pictures[2] == pictures[4] and len(set(pictures)) == 6
    assert page.read("sentence").startswith(f"At {times[-2] / 10:.1f} ms")
    page.press("End")
    assert drawn(page) and page.read("sentence").endswith("the epoch is over.")
    page.press("?")
    assert page.evaluate("$('help').open") is True
    page.press("Home")  # the page behind it stays as it is
    assert now(page) == times[-1]
    page.press("Escape")
    assert page.evaluate("$('help').open") is False


def test_play_goes_on_with_time_and_stops_at_the_end(open_page: OpenPage):
    page, label = open_page("#workers=2"), "$('play').ariaLabel"
    assert page.evaluate(label) == "Play" and drawn(page) == drawn(page)  # still, for a reader who prefers that
    page = open_page("#workers=2", still=False)
    assert page.evaluate(label) == "Pause"  # it plays by itself
    page.wait_until("now > 0")
    page.press(" ")
    assert page.evaluate(label) == "Play" and not page.evaluate("playing")
    held = now(page)
    drawn(page)
    assert now(page) == held > 0
    page.evaluate("go(run.end - 1), play(true)")
    page.wait_until("!playing")
    assert now(page) == page.evaluate("run.end") and page.evaluate(label) == "Play"


def test_each_control_has_a_name_and_what_changes_is_read_out(open_page: OpenPage):
    page = open_page()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it is drawn
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "slider", "checkbox", "combobox"}
    nodes = [each for each in nodes if not each.get("ignored")]
    of = [(each, each["role"]["value"], each["name"]["value"]) for each in nodes if "name" in each]
    named = [(role, name) for _, role, name in of if role in roles]
    assert all(name for _, name in named) and len(set(named)) == len(named)
    assert len(named) > 25 and {role for role, _ in named} == roles
    (picture,) = (each for each, role, name in of if role == "image" and name.startswith("The lanes"))
    assert picture["description"]["value"] == page.read("sentence") != ""
    roles_of = "[$('summary').role || $('summary').getAttribute('role'), $('sentence').ariaLive]"
    assert page.evaluate(roles_of) == ["status", "polite"]
    assert page.evaluate("$('sample').getAttribute('aria-valuetext')") == "8 ms"


@pytest.mark.parametrize("link", ["", "#workers=16&prefetch=8&pin=1&shape=slow_worker", "#workers=0"])
def test_nothing_is_wider_than_the_screen(link: str, open_page: OpenPage):
    page = open_page(link)
    for width in (360, 700, 1280):
        page.resize(width, 740)
        drawn(page)
        assert page.evaluate(ALL.format("body *", f"each.getBoundingClientRect().right > {width + 0.5}")) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        squeezed = "each.clientWidth && each.scrollWidth > each.clientWidth + 1"
        assert page.evaluate(ALL.format("button, label, dt, dd, legend", squeezed)) == []


def test_light_and_dark_are_drawn_in_colours_of_their_own(open_page: OpenPage):
    page = open_page("#workers=2")
    light, ground = drawn(page), "getComputedStyle(document.body).backgroundColor"
    was = page.evaluate(ground)
    page.click("#theme")
    assert drawn(page) != light and page.evaluate(ground) != was
    page.click("#theme")
    assert drawn(page) == light and page.evaluate(ground) == was
