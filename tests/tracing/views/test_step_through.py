"""The step-through, in a real browser: it shows `trace.state(k)`, and obeys its keys and buttons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data

import tracing
from minidl import DataLoader
from minidl.events import Kind, Queue
from tests.tracing.loads import Recorded
from tests.tracing.traces import copy
from tests.tracing.views.browser import OpenPage, Page
from tracing.trace.event_index import Lane
from tracing.trace.event_words import sentence, thread_name
from tracing.trace.source_lines import emit_sites
from tracing.trace.state import Label, LoaderState, MainStatus, PinState, QueueState, SlotState, SlotStatus, WorkerState
from tracing.trace.words import duration
from tracing.views.step_through import choose, step
from tracing.views.step_through.event_columns import ERRORS

READING = (Path(__file__).parent / "reading.js").read_text(encoding="utf-8")


@pytest.fixture
def open_page(open_html: OpenPage) -> OpenPage:
    """Opens the page of a trace."""

    def open_(trace: tracing.Trace, link: str = "", still: bool = True, **part: Any) -> Page:
        page = open_html(step(trace, **part).html, link, still=still)
        page.evaluate(READING)
        return page

    return open_


# ---- the state that is shown


def expected(trace: tracing.Trace, k: int, iterator: int) -> dict[str, Any]:
    """What a reader should see of one loader after event `k`, from `trace.state(k)` alone."""
    state = trace.state(k)
    loader = next(each for each in state.loaders if each.iterator == iterator)
    worker_rows = []
    for worker in loader.workers:
        process = [] if worker.exit_code is None else [f"exit code {worker.exit_code}"]
        process += [f"{worker.done} done", *([f"pid {worker.pid}"] if worker.pid else [])]
        worker_rows.append([str(worker.worker), *doing(worker, state.time), process])
    pinned = len(trace.index.lane(iterator, Lane.PIN)) > 0 and loader.workers
    return {
        "k": k,
        "about": [f"loader {loader.loader}", f"epoch {loader.epoch}", *([] if loader.alive else ["shut down"])],
        "main": main(trace, k, loader),
        "counts": [loader.send_idx, loader.rcvd_idx, loader.tasks_outstanding, loader.yielded],
        "index": [queue(each) for each in loader.index_queues],
        "workers": worker_rows,
        "slots": [[slot(*each) for each in enumerate(worker.slots)] for worker in loader.workers],
        "results": [queue(each) for each in loader.result_queues],
        "pin": doing(loader.pin_thread, state.time) if pinned else None,
        "data": labels(loader.data_queue.messages) if pinned else None,
        "reorder": reorder(loader) if loader.workers else None,
        "tasks": [
            f"{task}→ {info.worker}" + ("" if info.status.value == "outstanding" else f" {info.status.value}")
            for task, info in loader.task_info.items()
        ],
    }


def slot(number: int, state: SlotState) -> list[str]:
    batch = f", batch {state.task}" if state.task >= 0 else ""
    lies = state.status in (SlotStatus.FILLED, SlotStatus.LENT)
    return [f"slot {number}: {state.status.value}{batch}", str(state.task) if lies else ""]


def doing(thread: WorkerState | PinState, now: int) -> list[str]:
    task = str(thread.task) if thread.task >= 0 else ""
    return [thread.status.value, elapsed(thread.since, now), task]


def elapsed(since: int, now: int) -> str:
    return duration(now - since) if since else ""


def labels(messages: list[Label]) -> list[str]:
    return [str(message) for message in messages]


def queue(state: QueueState) -> list[Any]:
    """As it is drawn: the next message to be taken is on the right."""
    return [labels(state.buffer[::-1]), labels(state.pipe[::-1]), state.pickling]


def reorder(loader: LoaderState) -> list[Any]:
    waits_for, stored = loader.waits_for_task, loader.reorder_buffer
    words = "" if not stored else f"{waits_for} is next" if waits_for in stored else f"waits for {waits_for}"
    return [labels(stored), words]


def main(trace: tracing.Trace, k: int, loader: LoaderState) -> list[str]:
    state, events = loader.main, trace.events[: k + 1]
    task = ""
    if state.status is MainStatus.TRAINING:
        mine = (events["loader"] == loader.loader) & (events["epoch"] == loader.epoch)
        yielded = events["task"][mine & (events["kind"] == Kind.YIELDED)]
        task += f"on {yielded[-1]}" if len(yielded) else ""
    task += f"for {state.waits_for}" if state.waits_for >= 0 else ""
    task += f"with {state.in_hand}" if state.in_hand >= 0 else ""
    actor = trace.actors[state.actor] if state.actor >= 0 else None
    return [
        state.status.value,
        elapsed(state.since, int(events["time"][k])),
        task,
        f"{actor.thread} · pid {actor.pid}" if actor else "",
        f"shutdown: {loader.shutdown_step}" if loader.shutdown_step else "",
        "" if loader.error is None else f"raised: {loader.error}",
    ]


def walk(page: Page, moves: list[Any]) -> list[dict[str, Any]]:
    """What is shown after each of these moves: a key, or an event to go to."""
    return page.evaluate(f"reading.walk({json.dumps(moves)})")


def iterator_shown(trace: tracing.Trace, k: int) -> int:
    """The loader of the event, if it is alive; else the first that is."""
    event, there = trace.events[k], [each.iterator for each in trace.state(k).loaders]
    found = enumerate(trace.loaders)
    of = next(n for n, each in found if each.loader == event["loader"] and event["epoch"] in each.epochs)
    return of if of in there else there[0]


SAMPLED = ("pinned", "persistent", "nested", "empty", "serial", "slots", "second half", "torch")


def trace_of(load: str, recorded: Recorded, tmp_path: Path) -> tracing.Trace:
    """Of minidl, of torch, and without its beginning: as after damage to a file."""
    if load == "torch":
        with tracing.record(tmp_path / "torch"):
            list(torch.utils.data.DataLoader(range(12), batch_size=2, num_workers=2))
        return tracing.load(tmp_path / "torch")
    if load == "second half":
        whole = recorded("pinned")
        return copy(whole, whole.events[len(whole) // 2 :], tmp_path / "half")
    return recorded(load)


@pytest.mark.parametrize("load", ["in_order", "dying", *SAMPLED])
def test_every_state_is_shown_forwards_backwards_and_jumping(
    load: str, recorded: Recorded, open_page: OpenPage, tmp_path: Path
) -> None:
    trace = trace_of(load, recorded, tmp_path)
    page = open_page(trace)
    page.evaluate("document.getElementById('side').hidden = true")  # most of a step's time, and not part of the state
    if load in SAMPLED:
        forwards = walk(page, list(range(0, len(trace), max(7, len(trace) // 80))))
    else:
        forwards = walk(page, ["Home", *["ArrowRight"] * (len(trace) - 1)])
        assert walk(page, ["End", *["ArrowLeft"] * (len(trace) - 1)]) == forwards[::-1]
        order = np.random.default_rng(0).permutation(len(trace))[:100].tolist()
        assert walk(page, order) == [forwards[k] for k in order]
    for shown in forwards:
        state = expected(trace, shown["k"], iterator_shown(trace, shown["k"]))
        assert shown == state, f"event {shown['k']}"
    if load == "torch":
        assert "torch's own loader did this" in page.evaluate("document.querySelector('#source h2').textContent")


def test_of_several_loaders_each_is_shown(recorded: Recorded, open_page: OpenPage) -> None:
    trace = recorded("two_at_once")
    page = open_page(trace)
    page.evaluate("document.getElementById('side').hidden = true")
    events = range(0, len(trace), 17)
    for iterator, loader in enumerate(trace.loaders):
        page.evaluate(f"reading.set('loader', '{iterator}', 'change')")
        for k, shown in zip(events, walk(page, list(events)), strict=True):
            if any(each.iterator == iterator for each in trace.state(k).loaders):
                assert shown == expected(trace, k, iterator)
            else:
                assert "Not there" in shown["missing"]
        walk(page, ["Home"])  # the first of the chosen events
        assert page.evaluate("reading.read().k") == loader.first


# ---- the event, and its line of source


EVENT_SHOWN = """(() => {
  const text = (css) => document.querySelector(css).textContent;
  const lines = [...document.querySelectorAll("#source .shown .line")];
  return { sentence: text("#sentence .who") + " " + text("#sentence .words"), facts: text("#facts"),
           title: text("#source h2"), at: lines.findIndex((line) => line.classList.contains("emits")),
           lines: lines.map((line) => line.children[1].textContent) };
})()"""


@pytest.mark.parametrize("load", ["persistent", "dying"])
def test_an_event_is_shown_in_words_and_with_the_line_that_emitted_it(
    load: str, recorded: Recorded, open_page: OpenPage
) -> None:
    trace = recorded(load)
    page = open_page(trace)
    _, firsts = np.unique(trace.events[["kind", "queue"]], return_index=True)
    for k in firsts.tolist():
        kind, queue = Kind(trace.events["kind"][k]), Queue(trace.events["queue"][k])
        actor = trace.actors[trace.events["actor"][k]]
        walk(page, [k])
        shown, sites = page.evaluate(EVENT_SHOWN), emit_sites()[kind.name]
        if len(sites) > 1:
            sites = [each for each in sites if each.function.startswith("ThreadQueue.") == (queue is Queue.DATA)]
        (site,) = sites
        assert shown["title"] == f"{site.file}:{site.line} in {site.function}"
        assert f"def {site.function.rpartition('.')[2]}(" in shown["lines"][0]
        assert len(shown["lines"]) == site.last + 1 - site.first and shown["at"] == site.line - site.first
        emitting = " ".join(shown["lines"][shown["at"] : shown["at"] + 3])
        assert re.match(rf"\s*emit\([^)]*\b{kind.name}\b", emitting)
        assert shown["sentence"] == f"{thread_name(actor)} {sentence(trace.events[k]).text()}"
        assert shown["facts"].startswith(kind.name) and shown["facts"].endswith(f"of process {actor.pid}")
        assert kind is not Kind.COLLATE_END or re.search(r"· took \S+ .s, \S+ .s of it on the CPU ·", shown["facts"])
        assert kind is not Kind.LOADER or '"dataset":"Samples"' in shown["facts"]


def test_texts_are_shown_and_not_run(tmp_path: Path, open_page: OpenPage) -> None:
    evil = "</script><img src=x onerror=alert(1)><!-- 'quoted' & \u2028"

    def collate(samples: list[int]) -> None:
        raise KeyError(evil)

    with tracing.record(tmp_path / "evil"), pytest.raises(KeyError):
        list(DataLoader(range(1), collate_fn=collate))
    trace = tracing.load(tmp_path / "evil")
    page = open_page(trace, title=evil)
    (shown,) = walk(page, ["End"])
    assert shown == expected(trace, len(trace) - 1, 0)
    assert page.evaluate("[document.title, document.images.length]") == [evil, 0]


# ---- moving


def at(page: Page) -> int:
    """The number of the event that is shown."""
    return int(page.read("number", "value"))


def press(page: Page, *keys: str) -> int:
    """The event that these keys lead to."""
    for key in keys:
        page.press(key)
    return at(page)


def test_keys_move_to_an_event(recorded: Recorded, open_page: OpenPage) -> None:
    trace = recorded("dying")
    last = len(trace) - 1
    page = open_page(trace)
    for key, k in [
        ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("PageDown", 11), ("PageUp", 1), ("ArrowLeft", 0),
        ("ArrowLeft", 0), ("End", last), ("ArrowRight", last), ("Home", 0),
    ]:  # fmt: skip
        assert press(page, key) == k, key
    errors = np.flatnonzero(np.isin(trace.events["kind"], list(ERRORS))).tolist()
    assert [press(page, "e") for _ in [*errors, 0]] == [*errors, errors[-1]]
    assert press(page, "E") == errors[-2]
    early = np.flatnonzero(trace.events["kind"] == Kind.STORED).tolist()
    assert [press(page, "Home", *["o"] * number) for number in range(1, len(early) + 1)] == early != []
    assert press(page, "g", "1", "2", "3", "Enter") == 123
    page.press("Escape")
    assert press(page, "?", "ArrowRight") == 123 and page.read("help", "open")  # nothing moves behind the help
    assert press(page, "?", "ArrowRight") == 124


def test_only_chosen_events_are_stepped_through(recorded: Recorded, open_page: OpenPage) -> None:
    trace = recorded("pinned")
    events = trace.events
    workers = np.array([actor.role == "worker" and actor.worker == 1 for actor in trace.actors])[events["actor"]]
    batch = events["task"] == 3
    page = open_page(trace)

    def visited() -> list[int]:
        count = int(page.read("found").split()[0])
        seen = [shown["k"] for shown in walk(page, ["Home", *["ArrowRight"] * count])]
        assert [shown["k"] for shown in walk(page, ["End", *["ArrowLeft"] * (count - 1)])] == seen[-2::-1]
        return seen[:-1]

    page.evaluate("reading.set('who', 'worker 1', 'change')")
    assert visited() == np.flatnonzero(workers).tolist()
    page.evaluate("reading.set('batch', '3', 'input')")
    assert visited() == np.flatnonzero(workers & batch).tolist()
    page.press("Escape")
    walk(page, [int(np.flatnonzero(batch & (events["kind"] == Kind.FETCH_BEGIN))[0])])
    page.click(".worker [data-task='3']")  # a click on a batch follows it
    assert visited() == np.flatnonzero(batch).tolist()
    page.click("#clear")
    assert press(page, "Home", "ArrowRight") == 1


def test_the_slider_and_the_list_go_to_an_event(recorded: Recorded, open_page: OpenPage) -> None:
    trace = recorded("in_order")
    page = open_page(trace)
    page.click("#scrub")  # in its middle
    half = at(page)
    assert abs(half - len(trace) / 2) < 0.03 * len(trace)
    assert page.evaluate("reading.read()") == expected(trace, half, 0)
    assert press(page, "ArrowRight") == half + 1
    page.click("#around li:last-child button")
    assert at(page) == half + 9 == int(page.read("scrub", "value"))


def test_play_stops_when_asked_and_at_the_end(recorded: Recorded, open_page: OpenPage) -> None:
    trace = recorded("serial")
    page = open_page(trace)
    page.evaluate("reading.set('speed', '60', 'change')")
    page.press(" ")
    page.wait_until("Number(document.getElementById('number').value) > 5")
    stopped = press(page, " ")
    assert page.read("play", "ariaLabel") == "Play"
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert at(page) == stopped
    walk(page, [len(trace) - 3])
    page.click("#play")
    page.wait_until("document.getElementById('play').ariaLabel === 'Play'")  # it ends by itself
    assert at(page) == len(trace) - 1


def test_a_link_leads_to_an_event(recorded: Recorded, open_page: OpenPage) -> None:
    page = open_page(recorded("in_order"), "#k=123")
    assert press(page, "ArrowRight") == 124
    page.wait_until("location.hash === '#k=124'")
    page.evaluate("location.hash = '#k=7'")
    page.wait_until("document.getElementById('number').value === '7'")


# ---- a notebook, a part, a file


def test_a_notebook_shows_it_in_a_self_contained_frame(recorded: Recorded, open_html: OpenPage) -> None:
    trace = recorded("in_order")
    page = open_html(f"<p>before</p>{step(trace)._repr_html_()}<p>after</p>")
    inside = "document.querySelector('iframe').contentWindow"
    assert page.evaluate(f"{inside}.document.title") == f"{trace.path.name}: step by step"
    page.evaluate(f"{inside}.eval({json.dumps(READING)})")
    assert page.evaluate(f"{inside}.reading.walk([150, 'ArrowRight'])")[1] == expected(trace, 151, 0)


def test_a_page_of_some_batches_says_what_it_shows(recorded: Recorded, open_page: OpenPage) -> None:
    trace = recorded("not_in_order")
    page = open_page(trace, batches=(3, 5))
    mine = np.flatnonzero(np.isin(trace.events["task"], [3, 4]))
    first, last = int(mine[0]), int(mine[-1])
    seen = walk(page, ["Home", *["ArrowRight"] * (last - first + 1)])
    assert seen == [expected(trace, k, 0) for k in [*range(first, last + 1), last]]
    assert page.read("range") == f" of {first} to {last}"
    assert page.read("note").startswith(f"A part of a run: events {first} to {last} of {len(trace)}, ")


def test_an_excerpt_satisfies_what_was_asked(recorded: Recorded) -> None:
    trace = recorded("two_at_once")
    last, seconds = len(trace) - 1, (trace.events["time"] - trace.start) / 1e9
    assert choose(trace, loader=trace.loaders[2].loader).first == trace.loaders[2].first
    part = choose(trace, start=float(seconds[50]), end=float(seconds[90]))
    assert (part.first, part.last) == pytest.approx((50, 90), abs=1)
    kept = choose(trace, most=100)
    assert (kept.first, kept.last) == (0, 99) and f"{last - 99} more" in kept.note
    for k in (0, 3, last // 2, last):  # a moment, with what is around it
        found = choose(trace, at=float(seconds[k]) + 1e-9, most=20)
        assert found.first <= found.at <= found.last == found.first + 19
        assert abs(seconds[found.at] - seconds[k]) < 2e-9
