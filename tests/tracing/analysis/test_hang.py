"""Hangs are explained: of processes that really hang, and of traces with a part cut off."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import tracing
from minidl.events import Kind, Queue
from tests.minidl.dying import wait_until
from tests.tracing.hanging import PROGRAMS, hanging, later, until_it_hangs
from tests.tracing.loads import LOADS, Recorded
from tests.tracing.traces import copy
from tracing.analysis.hang.explain import explain
from tracing.analysis.hang.hang import Cause, Hang
from tracing.analysis.hang.patience import FLOOR, FLOOR_ENDED
from tracing.analysis.hang.stuck_moments import Ending
from tracing.recording import file_format as fmt

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="starts processes by fork")

KEYS = "batch 4, keys [8, 9]"
WAITS = f"waits on worker_result_queue for {KEYS}"
FETCHES = f"is in fetch of {KEYS}"

# What hangs -> why, and who waits for whom: the thread's name, and what it does.
HANGS: dict[str, tuple[Cause, list[tuple[str, str]]]] = {
    "blocks": (Cause.CODE, [("main", WAITS), ("worker 0", FETCHES)]),
    "torch": (Cause.CODE, [("main", WAITS), ("worker 0", FETCHES)]),
    "without order": (Cause.CODE, [("main", "the first of them batch 4"), ("the worker with batch 4", FETCHES)]),
    "pinned": (
        Cause.CODE,
        [
            ("main", f"waits on data_queue for {KEYS}"),
            ("the pin thread", "waits on worker_result_queue, where there is no whole message"),
            ("worker 0", FETCHES),
        ],
    ),
    "serial": (Cause.CODE, [("main", FETCHES)]),
    "torch drops": (Cause.UNSENDABLE, [("main", WAITS), ("the feeder thread of worker 0", "could not send batch 4")]),
    "sampler": (Cause.CODE, [("main", "draws the keys of batch 8")]),
    "init": (Cause.INIT_FN, [("main", "for batch 0"), ("worker 0", "is in worker_init_fn")]),
    "resume": (Cause.START, [("main", "for batch 0"), ("worker 0", "gets the dataset ready for a new epoch")]),
    "trains": (Cause.TRAINING, [("main", "has batch 2 and has not asked for the next")]),
}


def names(hang: Hang) -> list[str]:
    return [link.who.partition(" (pid ")[0] for link in hang.links]


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "timed out"])
def test_who_waits_for_whom(name: str, tmp_path: Path) -> None:
    cause, chain = HANGS[name]
    said = [what for _, what in chain]
    with hanging(name, tmp_path / "trace", cause, Ending.ONGOING, *said) as (trace, hang, pid):
        assert explain(trace, later(trace, FLOOR // 2)) is None  # it may only be slow
        tasks = trace.tasks
        has_it = f"worker {tasks['worker'][tasks['task'] == 4].item()}" if (tasks["task"] == 4).any() else ""
        assert names(hang) == [who.replace("the worker with batch 4", has_it) for who, _ in chain]
        for link, (_, what) in zip(hang.links, chain, strict=True):
            assert what in link.what and 0 <= link.event < len(trace) and trace.start <= link.since <= hang.until
            assert str(link.pid) in link.who and psutil.Process(link.pid).is_running()
        assert hang.links[0].pid == pid


def test_a_stopped_process_is_to_be_continued(tmp_path: Path) -> None:
    with hanging("blocks", tmp_path / "trace", Cause.CODE, Ending.ONGOING, WAITS) as (trace, hang, pid):
        for stopped, links in ((hang.links[1].pid, 2), (pid, 1)):
            os.kill(stopped, signal.SIGSTOP)
            wait_until(lambda each=stopped: psutil.Process(each).status() == psutil.STATUS_STOPPED)  # type: ignore[misc]
            _, found = until_it_hangs(trace.path, Cause.STOPPED)
            assert len(found.links) == links and found.links[-1].pid == stopped
            assert found.advice == f"Continue it: kill -CONT {stopped}"


def test_a_wait_that_timed_out_is_explained(tmp_path: Path) -> None:
    with hanging("timed out", tmp_path / "trace", Cause.CODE, Ending.TIMED_OUT) as (trace, hang, _):
        assert hang.age >= 200_000_000 and FETCHES in hang.links[-1].what
        assert "when its timeout ran out" in tracing.report(trace).notes[0]


# ---- runs that do not hang


@pytest.mark.parametrize("name", LOADS)
def test_a_run_that_ended_does_not_hang(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    assert explain(trace) is None and explain(trace, later(trace)) is None


# ---- edits of a trace in which main waits for batch 4, worker 0 fetches it, worker 1 has finished its tasks


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """hung("blocks") is the trace of that program as it was when it hung."""

    @functools.cache
    def of(name: str) -> tracing.Trace:
        cause, chain = HANGS[name]
        path, said = tmp_path_factory.mktemp(name) / "trace", [what for _, what in chain]
        with hanging(name, path, cause, Ending.ONGOING, *said) as (trace, *_):
            return trace

    return of


def edited(
    trace: tracing.Trace, directory: Path, events: np.ndarray | None = None, others: str = "lives", **about: Any
) -> tracing.Trace:
    """A trace with `events`, at their times; its main lives, or is `about["main"]`, its workers are `others`."""
    events = trace.events if events is None else events
    copy(trace, events, directory, events["time"])
    how = {
        actor.pid: about.get("main", "lives") if actor.role == "main" else others for actor in reversed(trace.actors)
    }
    description = {"format": fmt.VERSION, "processes": how, **about}
    (directory / fmt.DESCRIPTION).write_text(json.dumps(description))
    return tracing.load(directory)


def changed(events: np.ndarray, **fields: int) -> np.ndarray:
    """These events with other fields."""
    events = events.copy()
    for name, value in fields.items():
        events[name] = value
    return events


@pytest.mark.parametrize(
    ("ended", "ending", "limit"),
    [
        ({}, Ending.ONGOING, FLOOR),
        ({"stopped"}, Ending.RECORDED, FLOOR),  # while something still holds the iterator
        ({"stopped", "ended_by"}, Ending.INTERRUPTED, FLOOR_ENDED),
    ],
)
def test_how_long_is_too_long_depends_on_what_ended_it(
    hung: Recorded, tmp_path: Path, ended: set[str], ending: Ending, limit: int
) -> None:
    trace, how = hung("blocks"), "closed" if ended else "lives"
    for lasted, expected in ((limit - 10**9, None), (limit + 10**9, ending)):
        about: dict[str, Any] = {key: later(trace, lasted) if key == "stopped" else fmt.CTRL_C for key in ended}
        part = edited(trace, tmp_path / str(lasted), main=how, others=how, **about)
        found = explain(part, None if ended else later(part, lasted))
        assert (found and found.ending) is expected
    assert found is not None and found.cause is Cause.CODE and found.age == found.until - found.links[0].since


def test_patience_grows_with_what_was_seen(hung: Recorded, tmp_path: Path) -> None:
    """It is measured by the run itself: where a batch took 20 s, a minute is not long."""
    events = hung("blocks").events.copy()
    events["time"][np.flatnonzero(events["kind"] == Kind.ASKED)[0] + 1 :] += 20 * 10**9
    slow = edited(hung("blocks"), tmp_path / "slow", events)
    assert explain(slow, later(slow, 59 * 10**9)) is None
    assert explain(slow, later(slow, 65 * 10**9)) is not None


def test_the_present_is_the_default_unless_there_is_more_to_read(hung: Recorded, tmp_path: Path) -> None:
    events = hung("blocks").events.copy()
    events["time"] += 1 - events["time"][0]  # when the clock began
    of_main = events["actor"] == events["actor"][0]
    found = explain(edited(hung("blocks"), tmp_path / "trace", events))
    assert found is not None and (found.ending, found.cause) == (Ending.ONGOING, Cause.CODE)
    assert found.until <= time.monotonic_ns()
    one_less = np.delete(events, np.flatnonzero(of_main)[-1])
    trace = edited(hung("blocks"), tmp_path / "more", one_less)
    edited(hung("blocks"), tmp_path / "more", events)
    assert explain(trace) is None


@pytest.mark.filterwarnings("ignore::tracing.TraceDamage")
@pytest.mark.parametrize("change", ["full", "cut off"])
def test_what_was_not_recorded_is_not_judged(hung: Recorded, tmp_path: Path, change: str) -> None:
    """Main's file was full, or is cut off: it may have made progress."""
    trace = edited(hung("blocks"), tmp_path / "trace")
    path = fmt.events_file(trace.path, trace.actors[trace.events["actor"][0]].pid, 0)
    data = path.read_bytes()
    full = data[: fmt.DROPPED_AT] + fmt.COUNT.pack(7) + data[fmt.HEADER.size :]
    used = fmt.COUNT.pack((len(data) - fmt.HEADER_SIZE) // fmt.RECORD.size)
    cut = data[: fmt.USED_AT] + used + data[fmt.DROPPED_AT : -fmt.RECORD.size]
    path.write_bytes(full if change == "full" else cut)
    assert explain(tracing.load(trace.path), later(trace)) is None


def result(events: np.ndarray, *kinds: Kind) -> list[np.ndarray]:
    """Batch 4, put on the result queue and sent like batch 2, up to these steps, at the end of the trace."""
    of_batch_2 = events[(events["queue"] == Queue.RESULT) & (events["task"] == 2)]
    return [changed(of_batch_2[of_batch_2["kind"] == kind][:1], task=4, time=events["time"][-1]) for kind in kinds]


SENT = (Kind.PUT, Kind.SEND_BEGIN, Kind.SENT)


@pytest.mark.parametrize(
    ("name", "kinds", "cause"),
    [
        ("pinned", SENT, Cause.HALF_MESSAGE),
        ("blocks", SENT, Cause.HALF_MESSAGE),
        ("blocks", SENT[:2], Cause.LOADER),
        ("torch", SENT[:1], Cause.UNSEEN),
    ],
)
def test_a_message_that_does_not_arrive_is_blamed_on_its_feeder(
    hung: Recorded, tmp_path: Path, name: str, kinds: tuple[Kind, ...], cause: Cause
) -> None:
    events = hung(name).events
    found = explained(hung(name), tmp_path, [events, *result(events, *kinds)])
    assert found.cause is cause and "batch 4" in found.links[-1].what
    assert names(found) == ["main", *["the pin thread"] * (name == "pinned"), "the feeder thread of worker 0"]


def explained(trace: tracing.Trace, directory: Path, events: list[np.ndarray], **about: Any) -> Hang:
    part = edited(trace, directory / "trace", np.concatenate(events), **about)
    found = explain(part, later(part))
    assert found is not None
    return found


def test_in_words(hung: Recorded, tmp_path: Path) -> None:
    """`check` prints all of it, the report the gist. (In which line each is: see test_hang_ended.)"""
    found = explained(hung("blocks"), tmp_path, [hung("blocks").events])
    expected = rf"""It looks stuck: main \(pid \d+\) has made no progress for 30\.\d s \(before, it took at most .*\)\.
  main \(pid \d+\) {re.escape(WAITS)}: for 30\.\d s, since .* s \[event \d+\]
  worker 0 \(pid \d+\) {re.escape(FETCHES)}: for .* s, since .* s \[event \d+\]
  Why   {re.escape(Cause.CODE.value)}
  Next  See where it is: py-spy dump --pid {found.links[1].pid} \(a lock that is shared: .*\)"""
    assert re.fullmatch(expected, str(found)), str(found)
    [gist] = found.notes()
    assert WAITS in gist and FETCHES in gist


def test_a_death_that_main_has_not_noticed_is_found(hung: Recorded, tmp_path: Path) -> None:
    found = explained(hung("blocks"), tmp_path, [hung("blocks").events], others="gone")
    assert found.cause is Cause.DEAD and FETCHES in found.links[-1].what


def test_a_lost_task_is_found(hung: Recorded, tmp_path: Path) -> None:
    """Worker 0 took it, put nothing, and got no other."""
    events = hung("blocks").events
    fetches = (events["kind"] == Kind.FETCH_BEGIN) & (events["task"] == 4)
    waits = changed(events[fetches], kind=Kind.WAIT, queue=Queue.INDEX, task=-1, time=events["time"][-1])
    found = explained(hung("blocks"), tmp_path, [events[~fetches & (events["task"] != 6)], waits])
    assert found.cause is Cause.LOST
    assert found.links[-1].what == "waits on index_queue 0, which is empty: nothing will be sent to it"


@pytest.mark.parametrize("circle", [False, True])
def test_a_shutdown_that_waits_for_a_worker_is_explained(hung: Recorded, tmp_path: Path, circle: bool) -> None:
    """The worker is in the dataset's code; or it waits for its feeder thread to send, and that for main to read."""
    events = hung("blocks").events
    end = {"task": -1, "time": events["time"][-1]}
    of_main = events[events["kind"] == Kind.ASKED][:1]
    of_worker = events[(events["kind"] == Kind.FETCH_BEGIN) & (events["task"] == 4)]
    more = [changed(of_main, kind=Kind.SHUTDOWN_BEGIN, **end), changed(of_main, kind=Kind.JOIN_BEGIN, worker=0, **end)]
    if circle:
        leaves = changed(of_worker, kind=Kind.WORKER_END, **end)
        more += [*result(events, *SENT), leaves, changed(of_worker, kind=Kind.CLOSED, queue=Queue.RESULT, **end)]
    found = explained(hung("blocks"), tmp_path, [events, *more])
    assert found.links[0].what == "shuts the loader down, and waits for worker 0 to exit"
    assert found.cause is (Cause.CIRCLE if circle else Cause.CODE)
    assert names(found) == ["main", "worker 0", *["the feeder thread of worker 0"] * circle]
