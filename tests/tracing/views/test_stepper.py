"""The step-through, in a real browser: what it shows is `trace.state(k)`, and it does what its keys say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracing
from minidl.events import Kind
from tests.tracing.views import browser
from tests.tracing.views.browser import Browser, Page
from tracing.state import Label, LoaderState, MainStatus, QueueState
from tracing.views.stepper import write_page
from tracing.words import duration

pytestmark = pytest.mark.timeout(120)
Recorded = Callable[[str], tracing.Trace]
READING = (Path(__file__).parent / "reading.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = browser.find()
    if program is None:
        pytest.skip("no chromium or chrome on this machine")
    with Browser(program, tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def open_page(chromium: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page of a trace. In the end nobody has complained, and nothing but the file was asked for."""
    opened: list[tuple[Page, list[str]]] = []

    def open_(trace: tracing.Trace, link: str = "", still: bool = True, **part: Any) -> Page:
        path = tmp_path / f"{len(opened)}.html"
        write_page(trace, path, **part)
        page = chromium.page().__enter__()
        opened.append((page, [path.as_uri() + link]))
        if still:
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
        page.open(path.as_uri() + link)
        page.evaluate(READING)
        return page

    yield open_
    for page, _ in opened:
        page.__exit__()
    for page, requests in opened:
        assert page.complaints == []
        assert [url.partition("#")[0] for url in page.requests] == [url.partition("#")[0] for url in requests]


# ---- the state that is shown


def expected(trace: tracing.Trace, k: int, iterator: int) -> dict[str, Any]:
    """What a reader should see of one loader after event `k`, from `trace.state(k)` alone."""
    state = trace.state(k)
    loader = next(each for each in state.loaders if each.iterator == iterator)
    worker_rows = [
        [
            str(worker.worker),
            *doing(worker.status.value, worker.since, state.time),
            str(worker.task) if worker.task >= 0 else "",
            ([] if worker.exit_code is None else [f"exit code {worker.exit_code}"])
            + [f"{worker.done} done"]
            + ([f"pid {worker.pid}"] if worker.pid else []),
        ]
        for worker in loader.workers
    ]
    pinned, pin = any(actor.role == "pin" for actor in actors_of(trace, iterator)), loader.pin_thread
    names = [labels(loader.data_queue.messages)] if pinned and loader.workers else [None]
    return {
        "k": k,
        "about": about(trace, state, loader),
        "config": [each for name, value in loader.config.items() for each in (name, as_text(value))],
        "main": main(trace, k, loader),
        "counts": [loader.send_idx, loader.rcvd_idx, loader.tasks_outstanding, loader.yielded],
        "index": [queue(each) for each in loader.index_queues],
        "workers": worker_rows,
        "results": [queue(each) for each in loader.result_queues],
        "pin": [*doing(pin.status.value, pin.since, state.time), str(pin.task) if pin.task >= 0 else ""]
        if pinned and loader.workers
        else None,
        "data": names[0],
        "reorder": reorder(loader) if loader.workers else None,
        "tasks": [
            f"{task}→ {info.worker}" + ("" if info.status.value == "outstanding" else f" {info.status.value}")
            for task, info in loader.task_info.items()
        ],
    }


def actors_of(trace: tracing.Trace, iterator: int) -> list[Any]:
    events, found = trace.events, trace.loaders[iterator]
    mine = (events["loader"] == found.loader) & np.isin(events["epoch"], found.epochs)
    return [trace.actors[actor] for actor in np.unique(events["actor"][mine]).tolist()]


def doing(status: str, since: int, now: int) -> list[str]:
    return [status, duration(now - since) if since else ""]


def labels(messages: list[Label]) -> list[str]:
    return [str(message) for message in messages]


def queue(state: QueueState) -> list[Any]:
    """As it stands there: what is taken next stands at the right."""
    return [labels(state.buffer[::-1]), labels(state.pipe[::-1]), state.pickling]


def reorder(loader: LoaderState) -> list[Any]:
    waits_for, stored = loader.waits_for_task, loader.reorder_buffer
    words = "" if not stored else f"{waits_for} is next" if waits_for in stored else f"wait for {waits_for}"
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
        *doing(state.status.value, state.since, int(events["time"][k])),
        task,
        f"{actor.thread} · pid {actor.pid}" if actor else "",
        f"shutdown: {loader.shutdown_step}" if loader.shutdown_step else "",
        "" if loader.error is None else f"raised: {loader.error}",
    ]


def about(trace: tracing.Trace, state: tracing.State, loader: LoaderState) -> list[str]:
    count = loader.num_workers
    words = [f"loader {loader.loader}", f"epoch {loader.epoch}"]
    words.append("1 worker" if count == 1 else f"{count or 'no'} workers")
    if count and loader.config.get("prefetch_factor"):
        words.append(f"prefetch {loader.config['prefetch_factor']}")
    words += ["not in order"] if loader.config.get("in_order") is False else []
    words += [] if loader.alive else ["shut down"]
    if len(state.loaders) > 1:
        words.append("at once: " + " and ".join(name(trace, each.iterator) for each in state.loaders))
    return words


def name(trace: tracing.Trace, iterator: int) -> str:
    found = trace.loaders[iterator]
    epochs = f"{found.epochs[0]}" + (f" to {found.epochs[-1]}" if len(found.epochs) > 1 else "")
    return f"loader {found.loader}, epoch {epochs}"


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def walk(page: Page, moves: list[Any]) -> list[dict[str, Any]]:
    return page.evaluate(f"reading.walk({json.dumps(moves)})")


def iterator_shown(trace: tracing.Trace, k: int) -> int:
    """The loader that the event is of, if it is there; else the first that is."""
    event, there = trace.events[k], [each.iterator for each in trace.state(k).loaders]
    of = next(
        number
        for number, each in enumerate(trace.loaders)
        if each.loader == event["loader"] and event["epoch"] in each.epochs
    )
    return of if of in there else there[0]


LOADS = ["in_order", "not_in_order", "pinned", "stream", "persistent", "failing", "dying", "serial", "nested", "empty"]


@pytest.mark.parametrize("load", LOADS)
def test_every_state_is_shown_forwards_backwards_and_jumping(
    load: str, recorded: Recorded, open_page: Callable[..., Page]
) -> None:
    trace = recorded(load)
    states = [expected(trace, k, iterator_shown(trace, k)) for k in range(len(trace))]
    page = open_page(trace)
    page.evaluate("document.getElementById('side').hidden = true")  # most of a step's time, and no part of the state
    forwards = walk(page, ["Home", *["ArrowRight"] * (len(trace) - 1)])
    for shown, state in zip(forwards, states, strict=True):
        assert shown == state, f"event {state['k']}"
    backwards = walk(page, ["End", *["ArrowLeft"] * (len(trace) - 1)])
    assert backwards == forwards[::-1]
    order = np.random.default_rng(0).permutation(len(trace))[:100].tolist()
    assert walk(page, order) == [forwards[k] for k in order]
