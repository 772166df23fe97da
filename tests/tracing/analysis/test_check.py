"""Every law holds on real loads, and for each there is an edit that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import minidl
import tracing
from minidl.events import STOP, Kind, Queue
from minidl.laws import LAWS
from tests.tracing.loads import LOADS, Recorded, record
from tests.tracing.traces import copy
from tracing.recording import file_format

Edit = Callable[[np.ndarray], np.ndarray]


@pytest.mark.parametrize("name", LOADS)
def test_all_laws_hold_on_a_real_load(recorded: Recorded, name: str) -> None:
    assert tracing.check(recorded(name)) == []


@pytest.mark.parametrize("name", ["in_order", "persistent", "stream", "dying", "slots"])
def test_all_laws_hold_on_what_is_known_at_any_moment(recorded: Recorded, name: str, tmp_path: Path) -> None:
    """A trace that ends early breaks nothing by what would have come later."""
    trace = recorded(name)
    for n, end in enumerate(range(1, len(trace), len(trace) // 25)):
        assert tracing.check(copy(trace, trace.events[:end], tmp_path / str(n))) == []


# ---- edits of the events of a sound trace. A place is (n, kind, fields): the n-th such event


Place = tuple[int, Kind, dict[str, int]]


def at(n: int, kind: Kind, **fields: int) -> Place:
    return n, kind, fields


def find(events: np.ndarray, place: Place) -> int:
    n, kind, fields = place
    found = np.logical_and.reduce([events["kind"] == kind, *(events[name] == value for name, value in fields.items())])
    return int(np.flatnonzero(found)[n])


def without(*places: Place) -> Edit:
    return lambda events: np.delete(events, [find(events, place) for place in places])


def moved(old: Place, new: Place, after: int = 0) -> Edit:
    """The event at `old`, moved before the one at `new`, or after it."""
    return lambda events: move(events, find(events, old), find(events, new) + after)


def move(events: np.ndarray, old: int, new: int) -> np.ndarray:
    return np.insert(np.delete(events, old), new if new < old else new - 1, events[old])


def again(place: Place, before: Place | None = None) -> Edit:
    """The event once more, before the one at `before`."""
    return lambda events: np.insert(events, find(events, before or place), events[find(events, place)])


def changed(place: Place, field: str, value: int) -> Edit:
    def edit(events: np.ndarray) -> np.ndarray:
        events = events.copy()
        events[field][find(events, place)] = value
        return events

    return edit


def then(*edits: Edit) -> Edit:
    def edit(events: np.ndarray) -> np.ndarray:
        for each in edits:
            events = each(events)
        return events

    return edit


def lose_silently(events: np.ndarray) -> np.ndarray:
    task = int(events["task"][find(events, at(-1, Kind.RECEIVED))])
    return without(at(-1, Kind.RECEIVED), at(0, Kind.YIELDED, task=task))(events)


def fetch_after_stop(events: np.ndarray) -> np.ndarray:
    """Stop was in the queue before the last task, and the worker did that task nonetheless."""
    events = events.copy()
    for kind in (Kind.PUT, Kind.SEND_BEGIN, Kind.SENT, Kind.GOT):
        last, stop = (find(events, at(n, kind, **OF_INDEX)) for n in (-2, -1))
        assert events["task"][stop] == STOP
        events["task"][[last, stop]] = STOP, events["task"][last]
        events = move(events, stop, last + 1)  # the task is taken right after Stop, and only then fetched
    return events


OF_INDEX, OF_1 = {"queue": Queue.INDEX, "worker": 0}, {"epoch": 1, "worker": 1}
FIRST_BATCH, LAST_BATCH, OVER = at(0, Kind.YIELDED), at(-1, Kind.YIELDED), at(0, Kind.SHUTDOWN_END)
ACKNOWLEDGED, RESUMED = at(0, Kind.RESUME_ACKNOWLEDGED, **OF_1), at(0, Kind.WORKER_RESUMED, **OF_1)
TO_ONE_WORKER = [changed(at(n, Kind.DISPATCHED), "worker", 0) for n in range(6)]  # all that fit for 3 workers
# The edit -> the laws that it breaks, and the load. Where a count is wrong then, "bounded" is among them.
EDITS: dict[str, tuple[str, str, Edit]] = {
    "receive twice": ("exactly once, bounded", "in_order", again(at(0, Kind.RECEIVED))),
    "lose silently": ("exactly once", "pinned", lose_silently),
    "yield twice": ("exactly once", "in_order", again(at(2, Kind.YIELDED), at(3, Kind.YIELDED))),
    "keep forever": ("exactly once", "in_order", without(LAST_BATCH)),
    "release what was not stored": ("exactly once, bounded", "in_order", without(at(0, Kind.STORED))),
    "release twice": ("exactly once, bounded", "in_order", again(at(0, Kind.RELEASED))),
    "yield out of order": ("in order, exactly once", "in_order", moved(at(3, Kind.YIELDED), at(2, Kind.YIELDED))),
    "send two before a batch is out": ("bounded", "in_order", moved(at(7, Kind.DISPATCHED), FIRST_BATCH)),
    "send none before it": ("bounded", "in_order", moved(at(6, Kind.DISPATCHED), FIRST_BATCH, after=1)),
    "send all to one worker": ("bounded", "not_in_order", then(*TO_ONE_WORKER)),
    "go on after a loss": ("sticky", "dying", moved(LAST_BATCH, at(0, Kind.ERROR_RAISED), after=1)),
    "overtake in a queue": (
        "first in first out", "pinned", moved(at(1, Kind.PUT, **OF_INDEX), at(0, Kind.PUT, **OF_INDEX)),
    ),
    "get what was not sent": (
        "first in first out", "pinned", without(at(-1, Kind.SENT, queue=Queue.RESULT, worker=0)),
    ),
    "fetch another task": ("one at a time", "pinned", changed(at(1, Kind.FETCH_BEGIN, worker=0), "task", 0)),
    "fetch after stop": ("one at a time", "pinned", fetch_after_stop),
    "send before resumed": ("resumed", "persistent", without(ACKNOWLEDGED)),
    "acknowledge too early": ("resumed", "persistent", moved(ACKNOWLEDGED, RESUMED)),
    "workers before the pin": ("pin thread first", "pinned", moved(at(0, Kind.DONE_SET), at(0, Kind.PIN_STOPPING))),
    "forget a worker": ("joined", "pinned", without(at(0, Kind.WORKER_JOINED, worker=1))),
    "close too late": ("shutdown is the end", "pinned", moved(at(-1, Kind.CLOSED, queue=Queue.INDEX), OVER, after=1)),
    "feed late": ("shutdown is the end", "pinned", moved(at(-1, Kind.FEEDER_END, queue=Queue.INDEX), OVER, after=1)),
    "pin too late": ("shutdown is the end", "pinned", moved(at(0, Kind.PIN_THREAD_END), OVER, after=1)),
    "grant what is lent": ("slots in turn", "slots", without(at(0, Kind.SLOT_FREE))),
    "lend another slot": ("slots in turn", "slots", changed(at(-1, Kind.SLOT_LENT, value=0), "value", 99)),
    "free twice": ("slots in turn", "slots", again(at(0, Kind.SLOT_FREE))),
}  # fmt: skip


def test_each_law_is_broken_by_some_edit() -> None:
    page = (Path(__file__).parents[3] / "docs/views.md").read_text(encoding="utf-8")
    assert len(LAWS) == 11 and "eleven laws" in page
    assert {each.name for each in LAWS} == {name for names, _, _ in EDITS.values() for name in names.split(", ")}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_breaks_a_law(recorded: Recorded, tmp_path: Path, name: str) -> None:
    names, load, edit = EDITS[name]
    trace = copy(recorded(load), edit(recorded(load).events), tmp_path / "edited")
    found = tracing.check(trace)
    assert {violation.name for violation in found} == set(names.split(", ")), "\n".join(map(str, found))
    sentences = {each.name: each.sentence for each in LAWS}
    for violation in found:
        assert violation.sentence == sentences[violation.name] and violation.what in str(violation)
        assert violation.events == sorted(violation.events) and violation.events
        assert all(0 <= position < len(trace) for position in violation.events)


def test_missing_events_break_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Main's file is full: that RECEIVED is missing does not show that nothing was received."""
    monkeypatch.setattr(file_format, "CAPACITY", 100)
    trace = record("pinned", tmp_path / "full")
    assert trace.dropped > 0 and 100 <= trace.complete < len(trace)
    assert tracing.check(trace) == []


def test_an_iterator_that_outlives_its_recording_breaks_nothing(tmp_path: Path) -> None:
    """As in a notebook, or where an error keeps the frame that holds it: `iterator` outlives the `with`, and is shut
    down later, which main does not record."""
    with tracing.record(tmp_path / "run"):
        iterator = iter(minidl.DataLoader(range(40), batch_size=2, num_workers=2))
        next(iterator)
    del iterator
    trace = tracing.load(tmp_path / "run")
    assert trace.complete < len(trace), "the workers went on recording"
    assert tracing.check(trace) == []


def test_an_iterator_that_is_asked_after_its_end_breaks_nothing(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        ended, shut_down = (iter(minidl.DataLoader(range(8), batch_size=2, num_workers=1)) for _ in range(2))
        assert len(list(ended)) == 4 and next(ended, None) is None
        next(shut_down)
        shut_down._shutdown_workers()
        with pytest.raises(AssertionError, match="shutdown"):
            next(shut_down)
    trace = tracing.load(tmp_path / "run")
    for number, last in enumerate((Kind.EPOCH_END, Kind.ERROR_RAISED)):
        asked, over = (trace.index.group(number, kind).array for kind in (Kind.ASKED, Kind.SHUTDOWN_END))
        assert asked[-1] > over[0] and trace.events["kind"][trace.loaders[number].last] == last
    assert tracing.check(trace) == []
