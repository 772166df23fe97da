"""Programs and rules of exercise 13: the ways in which a loader can end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

import minidl
from minidl import signals
from minidl import world as worlds
from minidl.events import STOP, Kind, Queue
from minidl.shutdown import PATIENCE
from minidl.world.simulated.cores import never
from minidl.world.simulated.faults import Fault, Move, inject
from minidl.world.simulated.machine import current_machine
from minidl.world.simulated.schedule import Recorded
from minidl.world.simulated.simulation import in_user_code, sleep
from notebooks.exercises.programs import Keys, let_others_run, load
from notebooks.exercises.protocol import Breach, Rule, Run

TASKS, WORKERS = 6, 2
BATCHES = [[key] for key in range(TASKS)]

# ---- programs


def program() -> list[list[int]]:
    return load(Keys(TASKS), num_workers=WORKERS, pin_memory="host")


def dropped(dataset: Any, **options: Any) -> None:
    """One batch; then the iterator is dropped."""
    iterator = iter(minidl.DataLoader(dataset, batch_size=1, num_workers=WORKERS, **options))
    next(iterator)
    let_others_run()
    del iterator


class Slow(Keys):
    """A sample takes a millisecond."""

    def __getitem__(self, key: int) -> int:
        sleep(0.001)
        return key


def dropped_early() -> None:
    dropped(Slow(20), prefetch_factor=8)


class Stuck(Keys):
    """A sample that never comes: a server that does not answer. Ctrl-C does not end the wait, either."""

    def __getitem__(self, key: int) -> int:
        while key >= WORKERS:
            try:
                with in_user_code() as machine:
                    machine.until(never)
            except KeyboardInterrupt:
                continue
        return key


def stuck() -> None:
    dropped(Stuck(20))


class Unreadable:
    """A batch sampler that raises: its file of keys does not exist."""

    def __iter__(self) -> Any:
        raise OSError("no such file")


def shut_down_again() -> list[list[int]]:
    """Shut down at the end of the epoch, by hand, and when the iterator goes; and an iterator that was never built."""
    iterator: Any = iter(minidl.DataLoader(Keys(TASKS), batch_size=1, collate_fn=list, num_workers=WORKERS))
    batches = list(iterator)
    iterator._shutdown_workers()
    with contextlib.suppress(OSError):
        iter(minidl.DataLoader(Keys(TASKS), batch_sampler=Unreadable(), num_workers=WORKERS))
    return batches


def still_held() -> tuple[int, int]:
    """After an epoch, with the iterator still referred to: how many ends of pipes main has open, and for how many
    iterators it watches the workers."""
    iterator: Any = iter(minidl.DataLoader(Keys(TASKS), batch_size=1, num_workers=WORKERS, pin_memory="host"))
    list(iterator)
    return len(current_machine().processes[0].ends), len(signals._watched)


KEPT: list[Any] = []


def inherited() -> list[list[int]]:
    """A process forked from main shuts down its copy of the iterator; main goes on with the iterator."""
    KEPT[:] = [iter(minidl.DataLoader(Keys(TASKS), batch_size=1, collate_fn=list, num_workers=WORKERS))]
    first = next(KEPT[0])
    child = worlds.current().process(lambda: KEPT[0]._shutdown_workers(), (), "a child")
    child.start()
    child.join()
    return [first, *KEPT.pop()]


class CtrlCInTheWait(Recorded):
    """Ctrl-C as soon as every thread waits: main is in step 3."""

    def __init__(self) -> None:
        super().__init__(seed=0, faults=0, horizon=1)

    def choose(self, machine: Any) -> Any:
        if not self.moves and self.by_default(machine) is None:
            self.moves.append(Move(machine.step, Fault.INTERRUPT))
            inject(machine, self.moves[0])
        return self.by_default(machine)


# ---- rules


def _first_stop(run: Run) -> int | None:
    """The position of the first Stop that is put on an index_queue."""
    stops = run.of(Kind.PUT, queue=Queue.INDEX, task=STOP)
    return int(stops[0]) if len(stops) else None


def _pin_thread_first(run: Run) -> Iterator[Breach]:
    stop, ends = _first_stop(run), run.of(Kind.PIN_THREAD_END)
    if stop is not None and len(run.of(Kind.PIN_THREAD_BEGIN)) and not (len(ends) and ends[0] < stop):
        yield Breach("a worker was told to stop before the pin thread had ended", [stop])


def _told(run: Run) -> Iterator[Breach]:
    told = {run.worker(position) for position in run.of(Kind.PUT, queue=Queue.INDEX, task=STOP)}
    forced = run.of(Kind.WORKER_TERMINATED)
    for worker_id in sorted(set(range(WORKERS)) - told):
        if len(forced) or run.outcome.deadlock:
            at = int(forced[0]) if len(forced) else len(run.events) - 1
            yield Breach(f"no Stop was put on the index_queue of worker {worker_id}: it waits for a task", [at])


def _none_forced(run: Run) -> Iterator[Breach]:
    for position in run.of(Kind.WORKER_TERMINATED):
        worker_id = run.worker(position)
        yield Breach(f"worker {worker_id} got SIGTERM, but would have ended by itself", [int(position)])


def _skips(run: Run) -> Iterator[Breach]:
    stop = _first_stop(run)
    begun = run.of(Kind.FETCH_BEGIN)
    for worker_id in range(WORKERS):
        late = begun[(run.events["worker"][begun] == worker_id) & (begun > (len(run.events) if stop is None else stop))]
        if len(late) > 1:  # it may have begun one before it could know
            yield Breach(f"worker {worker_id} began {len(late)} tasks after a worker was told to stop", [int(late[1])])


def _within(run: Run) -> Iterator[Breach]:
    if not run.never_ends and run.outcome.lasted > PATIENCE + 1:
        at = run.of(Kind.WORKER_TERMINATED, Kind.JOIN_BEGIN)
        yield Breach(f"it took {run.outcome.lasted:.0f} s", [int(each) for each in at[-1:]])


def _once(run: Run) -> Iterator[Breach]:
    """`tell_to_stop` and `close_queues` each cancel the wait for a queue's feeder: once per queue."""
    said = run.of(Kind.JOIN_CANCELLED, queue=Queue.INDEX)
    counts = np.cumsum(run.events["worker"][said] == 0)
    again = said[counts > 2]
    if len(again):
        yield Breach("the steps were done again", [int(again[0])])
    elif run.outcome.swallowed:
        yield Breach(f"raised where Python only prints: {run.outcome.swallowed[0]}", [len(run.events) - 1])


def _lets_go(run: Run) -> Iterator[Breach]:
    if run.outcome.result is not None:
        ends, watched = run.outcome.result
        words = [f"it has {ends} ends of pipes open"] if ends else []
        words += ["it still watches for the ends of its workers"] if watched else []
        if words:
            yield Breach(f"the shutdown is over, but {' and '.join(words)}", [len(run.events) - 1])


PIN_FIRST = Rule("pin thread first", "the pin thread has ended before a worker is told to stop", _pin_thread_first)
TOLD = Rule("every worker is told", "a worker that waits for a task is woken by a Stop on its index_queue", _told)
NO_FORCE = Rule("no force", "force is for workers that do not end by themselves in time", _none_forced)
SKIPS = Rule("queued tasks are skipped", "once the workers are told to stop, none begins another task", _skips)
WITHIN = Rule("one deadline", f"all workers together get {PATIENCE:.0f} s to end by themselves", _within)
LETS_GO = Rule("lets go", "after the shutdown main holds no queues, and watches no worker", _lets_go)
ONCE = Rule("one shutdown", "a second call finds nothing to do", _once)
