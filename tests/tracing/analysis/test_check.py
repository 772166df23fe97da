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
from tests.tracing.loads import LOADS
from tests.tracing.traces import copy

Recorded = Callable[[str], tracing.Trace]
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


# ---- edits: each takes the events of a sound trace; `at` finds the positions of some


def at(events: np.ndarray, kind: Kind, **fields: int) -> list[int]:
    found = events["kind"] == kind
    for name, value in fields.items():
        found &= events[name] == value
    positions = np.flatnonzero(found).tolist()
    assert positions, f"no {kind.name} with {fields}"
    return positions


def without(events: np.ndarray, *positions: int) -> np.ndarray:
    return np.delete(events, positions)


def moved(events: np.ndarray, old: int, new: int) -> np.ndarray:
    """The event at `old`, moved before the one at `new`."""
    rest = np.delete(events, old)
    return np.insert(rest, new if new < old else new - 1, events[old])


def swapped(events: np.ndarray, field: str, one: int, other: int) -> np.ndarray:
    events = events.copy()
    events[field][[one, other]] = events[field][[other, one]]
    return events


def again(events: np.ndarray, position: int, before: int) -> np.ndarray:
    """The event once more, before the one at `before`."""
    return np.concatenate([events[:before], events[position : position + 1], events[before:]])


def receive_twice(events: np.ndarray) -> np.ndarray:
    first = at(events, Kind.RECEIVED)[0]
    return again(events, first, first)


def lose_silently(events: np.ndarray) -> np.ndarray:
    last = at(events, Kind.RECEIVED)[-1]
    task = events["task"][last]
    return without(events, last, *at(events, Kind.YIELDED, task=task))


def yield_twice(events: np.ndarray) -> np.ndarray:
    return again(events, at(events, Kind.YIELDED, task=2)[0], at(events, Kind.YIELDED, task=3)[0])


def keep_forever(events: np.ndarray) -> np.ndarray:
    last = at(events, Kind.YIELDED)[-1]
    return without(events, last)


def overtake_in_a_queue(events: np.ndarray) -> np.ndarray:
    first, second = at(events, Kind.PUT, queue=Queue.INDEX, worker=0)[:2]
    return swapped(events, "task", first, second)


def get_what_was_not_sent(events: np.ndarray) -> np.ndarray:
    return without(events, at(events, Kind.SENT, queue=Queue.RESULT, worker=0)[-1])


def send_too_early(events: np.ndarray) -> np.ndarray:
    """Two tasks before the first batch is handed out."""
    return moved(events, at(events, Kind.DISPATCHED)[7], at(events, Kind.YIELDED)[0])


def send_too_late(events: np.ndarray) -> np.ndarray:
    """None before the first batch is handed out."""
    return moved(events, at(events, Kind.DISPATCHED)[6], at(events, Kind.YIELDED)[0] + 1)


def send_all_to_one_worker(events: np.ndarray) -> np.ndarray:
    events = events.copy()
    events["worker"][at(events, Kind.DISPATCHED)[:6]] = 0  # prefetch_factor is 2: those of all 3 workers
    return events


def yield_out_of_order(events: np.ndarray) -> np.ndarray:
    return swapped(events, "task", at(events, Kind.YIELDED)[2], at(events, Kind.YIELDED)[3])


def fetch_another_task(events: np.ndarray) -> np.ndarray:
    events = events.copy()
    fetches = at(events, Kind.FETCH_BEGIN, worker=0)
    events["task"][fetches[1]] = events["task"][fetches[0]]
    return events


def fetch_after_stop(events: np.ndarray) -> np.ndarray:
    """Stop was in the queue before the last task, and the worker did that task nonetheless."""
    events = events.copy()
    last, stop = at(events, Kind.GOT, queue=Queue.INDEX, worker=0)[-2:]
    assert events["task"][stop] == STOP
    task = events["task"][last]
    for kind in (Kind.PUT, Kind.SEND_BEGIN, Kind.SENT, Kind.GOT):
        positions = at(events, kind, queue=Queue.INDEX, worker=0)[-2:]
        events["task"][positions] = STOP, task
        if kind is not Kind.GOT:
            events = moved(events, positions[1], positions[0] + 1)
    # The task is taken right after Stop, and only then fetched.
    stop, last = at(events, Kind.GOT, queue=Queue.INDEX, worker=0)[-2:]
    return moved(events, last, stop + 1)


def stop_workers_before_pin_thread(events: np.ndarray) -> np.ndarray:
    return moved(events, at(events, Kind.DONE_SET)[0], at(events, Kind.PIN_STOPPING)[0])


def forget_a_worker(events: np.ndarray) -> np.ndarray:
    return without(events, at(events, Kind.WORKER_JOINED, worker=1)[0])


def send_before_resumed(events: np.ndarray) -> np.ndarray:
    return without(events, at(events, Kind.RESUME_ACKNOWLEDGED, epoch=1, worker=1)[0])


def acknowledge_too_early(events: np.ndarray) -> np.ndarray:
    acknowledged = at(events, Kind.RESUME_ACKNOWLEDGED, epoch=1, worker=1)[0]
    return moved(events, acknowledged, at(events, Kind.WORKER_RESUMED, epoch=1, worker=1)[0])


def go_on_after_a_loss(events: np.ndarray) -> np.ndarray:
    return moved(events, at(events, Kind.YIELDED)[-1], at(events, Kind.ERROR_RAISED)[0] + 1)


def lose_without_an_error(events: np.ndarray) -> np.ndarray:
    events = moved(events, at(events, Kind.YIELDED)[-1], at(events, Kind.TASK_LOST)[-1] + 1)
    return without(events, *at(events, Kind.ERROR_RAISED))


def release_what_was_not_stored(events: np.ndarray) -> np.ndarray:
    return without(events, at(events, Kind.STORED)[0])


def release_twice(events: np.ndarray) -> np.ndarray:
    first = at(events, Kind.RELEASED)[0]
    return again(events, first, first)


def close_after_the_shutdown(events: np.ndarray) -> np.ndarray:
    return moved(events, at(events, Kind.CLOSED, queue=Queue.INDEX)[-1], at(events, Kind.SHUTDOWN_END)[0] + 1)


def feed_after_the_shutdown(events: np.ndarray) -> np.ndarray:
    return moved(events, at(events, Kind.FEEDER_END, queue=Queue.INDEX)[-1], at(events, Kind.SHUTDOWN_END)[0] + 1)


def pin_after_the_shutdown(events: np.ndarray) -> np.ndarray:
    return moved(events, at(events, Kind.PIN_THREAD_END)[0], at(events, Kind.SHUTDOWN_END)[0] + 1)


def grant_what_is_lent(events: np.ndarray) -> np.ndarray:
    return without(events, at(events, Kind.SLOT_FREE)[0])


def lend_another_slot(events: np.ndarray) -> np.ndarray:
    events = events.copy()
    lent = at(events, Kind.SLOT_LENT, value=0)[-1]
    events["value"][lent] = 99
    return events


def free_twice(events: np.ndarray) -> np.ndarray:
    first = at(events, Kind.SLOT_FREE)[0]
    return again(events, first, first)


# The laws that an edit breaks, the load, and the edit. Where a count is wrong then, "bounded" is among them.
EDITS: list[tuple[set[str], str, Edit]] = [
    ({"exactly once", "bounded"}, "in_order", receive_twice),
    ({"exactly once"}, "pinned", lose_silently),
    ({"exactly once"}, "in_order", yield_twice),
    ({"exactly once"}, "in_order", keep_forever),
    ({"exactly once", "bounded"}, "in_order", release_what_was_not_stored),
    ({"exactly once", "bounded"}, "in_order", release_twice),
    ({"in order", "exactly once"}, "in_order", yield_out_of_order),
    ({"bounded"}, "in_order", send_too_early),
    ({"bounded"}, "in_order", send_too_late),
    ({"bounded"}, "not_in_order", send_all_to_one_worker),
    ({"sticky"}, "dying", lose_without_an_error),
    ({"sticky"}, "dying", go_on_after_a_loss),
    ({"first in first out"}, "pinned", overtake_in_a_queue),
    ({"first in first out"}, "pinned", get_what_was_not_sent),
    ({"one at a time"}, "pinned", fetch_another_task),
    ({"one at a time"}, "pinned", fetch_after_stop),
    ({"resumed"}, "persistent", send_before_resumed),
    ({"resumed"}, "persistent", acknowledge_too_early),
    ({"pin thread first"}, "pinned", stop_workers_before_pin_thread),
    ({"joined"}, "pinned", forget_a_worker),
    ({"shutdown is the end"}, "pinned", close_after_the_shutdown),
    ({"shutdown is the end"}, "pinned", feed_after_the_shutdown),
    ({"shutdown is the end"}, "pinned", pin_after_the_shutdown),
    ({"slots in turn"}, "slots", grant_what_is_lent),
    ({"slots in turn"}, "slots", lend_another_slot),
    ({"slots in turn"}, "slots", free_twice),
]


def test_the_page_lists_every_law() -> None:
    page = (Path(__file__).parents[3] / "docs/views.md").read_text(encoding="utf-8")
    rows = [f"| {each.name} | {each.sentence} |" for each in LAWS]
    assert "\n".join(rows) in page
    assert len(rows) == 11 and "eleven laws" in page


def test_every_law_is_broken_by_some_edit() -> None:
    assert {each.name for each in LAWS} == set.union(*(names for names, _, _ in EDITS))


@pytest.mark.parametrize(("names", "load", "edit"), EDITS, ids=[edit.__name__ for _, _, edit in EDITS])
def test_an_edit_breaks_a_law(recorded: Recorded, tmp_path: Path, names: set[str], load: str, edit: Edit) -> None:
    trace = copy(recorded(load), edit(recorded(load).events), tmp_path / "edited")
    found = tracing.check(trace)
    assert {violation.name for violation in found} == names, "\n".join(map(str, found))
    sentences = {each.name: each.sentence for each in LAWS}
    for violation in found:
        assert violation.sentence == sentences[violation.name] and violation.what in str(violation)
        assert violation.events == sorted(violation.events) and violation.events
        assert all(0 <= position < len(trace) for position in violation.events)


def test_missing_events_break_nothing(tmp_path: Path) -> None:
    """Main's file is full: that RECEIVED is missing does not show that nothing was received."""
    with tracing.record(tmp_path / "full", capacity=100):
        LOADS["pinned"](tmp_path / "full")
    trace = tracing.load(tmp_path / "full")
    assert trace.dropped > 0 and 100 <= trace.complete < len(trace)
    assert tracing.check(trace) == []


def test_an_iterator_that_outlives_its_recording_breaks_nothing(tmp_path: Path) -> None:
    """As in a notebook: `iterator` outlives the `with`, and is shut down later, which main does not record."""
    with tracing.record(tmp_path / "run"):
        iterator = iter(minidl.DataLoader(range(40), batch_size=2, num_workers=2))
        next(iterator)
    del iterator
    trace = tracing.load(tmp_path / "run")
    assert trace.complete < len(trace), "the workers went on recording"
    assert tracing.check(trace) == []


def test_an_error_that_keeps_the_iterator_breaks_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError) as caught, tracing.record(tmp_path / "run"):
        list(minidl.DataLoader({0: 0, 1: 1}, batch_size=1, num_workers=2, sampler=[0, 1, 2, 0]))  # there is no key 2
    del caught  # and with it the frames that hold the iterator: only now are the workers stopped
    assert tracing.check(tracing.load(tmp_path / "run")) == []


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
