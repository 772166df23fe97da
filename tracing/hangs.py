"""A trace that just stops: who waits for whom, since when, and what each process said last.

    print(explain(trace))      None when nothing hangs

A batch is always somewhere: in a queue, in a worker's hands, with the pin thread, in the reorder buffer. So whoever
main waits for follows from the state after the last event, and from there on whoever that one waits for.

When is it a hang? Of a run that goes on: when main's last word is older than anything that was normal in this trace,
and than a floor. Of one whose main was killed in the middle of an epoch: always, since it was killed for some reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minidl.events import Kind, Queue
from tracing.index import Lane
from tracing.recording import in_progress, is_alive
from tracing.replay import label
from tracing.state import LoaderState, MainStatus, PinStatus, State, WorkerState, WorkerStatus
from tracing.trace import Trace
from tracing.words import QUEUE_NAMES, duration

FLOOR = 5_000_000_000  # ns; a shorter silence is no hang
TIMES = 5  # times the longest silence of main before it
NAMES = {kind.value: kind.name for kind in Kind}
PROCESS_STATES = {"T": "is stopped (SIGSTOP, or a debugger)", "D": "waits in the kernel, for a disk or a network"}


@dataclass(frozen=True)
class LastWord:
    """The last event of a thread."""

    who: str  # "main", "worker 0", "feeder of worker 0"
    pid: int
    event: int  # its position
    said: str  # "FETCH_BEGIN 7"
    age: int  # ns


@dataclass(frozen=True)
class Hang:
    """What hangs. `str()` is its text."""

    chain: list[str]  # sentences: main first, then whom it waits for, and so on to the root
    waiters: list[str]  # what the others wait for, a sentence each
    last: list[LastWord]  # of each thread, the one that was silent for longest first

    def __str__(self) -> str:
        lines = [f"Hangs: {self.chain[0]}", *(f"       {each}" for each in (*self.chain[1:], *self.waiters))]
        lines.append("Last words")
        width = max(len(each.who) for each in self.last)
        for each in self.last:
            age = duration(each.age)
            lines.append(f"  {each.who:{width}}  pid {each.pid}  {age:>8} ago  {each.said} [event {each.event}]")
        return "\n".join(lines)


def explain(trace: Trace, now: int | None = None) -> Hang | None:
    """What the trace's last loader hangs in; None if it does not hang.

    now: ns, the clock of the events; by default the present for a run that goes on, else the end of the trace.
    """
    if not len(trace):
        return None
    going_on = in_progress(trace.path)
    end = int(trace.events["time"][-1])
    now = max(end, (time.monotonic_ns() if going_on else end) if now is None else now)
    state = trace.state(-1)
    alive = [loader for loader in state.loaders if loader.alive and _role(trace, loader) == "main"]
    stuck = [each for each in alive if _is_stuck(trace, each, now, going_on)]
    if not stuck:
        return None
    loader = min(stuck, key=lambda each: each.main.since)
    teller = Teller(trace, state, now, going_on)
    return Hang(list(teller.main(loader)), list(teller.waiters(loader)), teller.last_words())


def _role(trace: Trace, loader: LoaderState) -> str:
    return trace.actors[loader.main.actor].role if loader.main.actor >= 0 else ""


def _is_stuck(trace: Trace, loader: LoaderState, now: int, going_on: bool) -> bool:
    if loader.main.status in (MainStatus.ENDED, MainStatus.CLOSED, MainStatus.RAISED):
        return False
    if not going_on:  # and it was not shut down: whoever could have done so is gone
        return trace.about.get("stopped") is None and not is_alive(trace.actors[loader.main.actor].pid)
    said = trace.events["time"][trace.index.lane(loader.iterator, Lane.MAIN).array]
    longest = int(np.diff(said).max()) if len(said) > 1 else 0
    return now - int(said[-1]) > max(FLOOR, TIMES * longest)


class Teller:
    """Follows who waits for whom."""

    def __init__(self, trace: Trace, state: State, now: int, going_on: bool) -> None:
        self.trace, self.state, self.now, self.going_on = trace, state, now, going_on

    def since(self, time: int) -> str:
        return duration(self.now - time)

    def main(self, loader: LoaderState) -> Iterator[str]:
        """Why this main goes no further."""
        main, who = loader.main, "main"
        if self.trace.actors[main.actor].role != "main":
            who = f"the DataLoader in the dataset, in process {self.trace.actors[main.actor].pid},"
        if main.status is MainStatus.WAITING and main.waits_for >= 0:
            queue = QUEUE_NAMES[Queue.DATA if loader.pin_thread.status is not PinStatus.NONE else Queue.RESULT]
            yield f"{who} has waited for batch {main.waits_for} on {queue} for {self.since(main.since)}."
            yield from self.batch(loader, main.waits_for)
        elif main.status is MainStatus.TRAINING:
            yield (
                f"{who} has not asked for a batch for {self.since(main.since)}: it is in the training step, or "
                "elsewhere in the program. The loader waits for it."
            )
        elif main.status is MainStatus.SHUTTING_DOWN:
            yield f"{who} has been in the shutdown's step {loader.shutdown_step} for {self.since(main.since)}."
            for worker in loader.workers:
                if worker.status is not WorkerStatus.REAPED:
                    yield from self.worker(loader, worker)
        else:
            keys = self.keys(loader, loader.send_idx - 1) if main.status is MainStatus.FETCHING else ""
            yield f"{who} has been {main.status.value}{keys} for {self.since(main.since)}."
            if main.status in (MainStatus.RESUMING, MainStatus.WAITING):
                for worker in loader.workers:
                    yield from self.worker(loader, worker)

    def batch(self, loader: LoaderState, task: int) -> Iterator[str]:
        """Where a batch is that somebody waits for, and why it comes no further."""
        info = loader.task_info.get(task)
        worker = loader.workers[info.worker] if info is not None and loader.workers else None
        if worker is None:
            yield f"Batch {task} was never sent."
        elif worker.task == task:
            yield from self.worker(loader, worker)
        elif task in loader.index_queues[worker.worker].messages:
            yield f"Batch {task} has not been begun: it lies in index_queue {worker.worker}."
            yield from self.worker(loader, worker)
        elif task in loader.result_queues[worker.worker].buffer:
            yield f"Batch {task} is made; worker {worker.worker}'s feeder thread has not sent it."
            yield from self.process(worker)
        elif loader.pin_thread.task == task:
            yield f"The pin thread has had batch {task} for {self.since(loader.pin_thread.since)}."
        elif task in loader.result_queues[worker.worker].pipe and loader.pin_thread.status is not PinStatus.NONE:
            pin = loader.pin_thread
            yield f"Batch {task} is sent; the pin thread has been {pin.status.value} for {self.since(pin.since)}."
        else:
            yield f"Batch {task} is made and sent: main has only to take it."

    def worker(self, loader: LoaderState, worker: WorkerState) -> Iterator[str]:
        """What a worker does, and whom it waits for in turn."""
        doing = worker.status.value
        if worker.task >= 0:
            doing += f" batch {worker.task}{self.keys(loader, worker.task)}"
        yield f"Worker {worker.worker} (pid {worker.pid}) has been {doing} for {self.since(worker.since)}."
        yield from self.process(worker)
        for nested in self.state.loaders:
            if nested.alive and nested is not loader and self.trace.actors[nested.main.actor].pid == worker.pid:
                yield from self.main(nested)

    def process(self, worker: WorkerState) -> Iterator[str]:
        """What the system says of it, if it still can."""
        if not self.going_on:
            return
        if worker.status is not WorkerStatus.REAPED and not is_alive(worker.pid):
            yield f"Process {worker.pid} does not exist any more, and main has not noticed."
            return
        try:
            state = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # no Linux
            return
        if state in PROCESS_STATES:
            yield f"Process {worker.pid} {PROCESS_STATES[state]}."

    def waiters(self, loader: LoaderState) -> Iterator[str]:
        """Workers that have nothing to do, and why."""
        for worker in loader.workers:
            idle = worker.status in (WorkerStatus.WAITING, WorkerStatus.IDLE)
            if idle and not len(loader.index_queues[worker.worker]):
                yield (
                    f"Worker {worker.worker} has waited on its empty index_queue for {self.since(worker.since)}: main "
                    "sends a task for each batch that it hands to training."
                )

    def keys(self, loader: LoaderState, task: int) -> str:
        events = self.trace.events
        drawn = self.trace.index.group(loader.iterator, Kind.KEYS_DRAWN).array
        drawn = drawn[(events["task"][drawn] == task) & (events["epoch"][drawn] == loader.epoch)]
        return f", keys {self.trace.text(int(drawn[0]))}," if len(drawn) else ""

    def last_words(self) -> list[LastWord]:
        events = self.trace.events
        actors, back = np.unique(events["actor"][::-1], return_index=True)
        found = []
        for actor, position in zip(actors.tolist(), (len(events) - 1 - back).tolist(), strict=True):
            event, thread = events[position], self.trace.actors[actor]
            who = thread.role + (f" of worker {event['worker']}" if thread.role == "feeder" else "")
            who = f"worker {event['worker']}" if thread.role == "worker" and event["worker"] >= 0 else who
            task = f" {label(int(event['task']))}" if event["task"] != -1 else ""
            age = self.now - int(event["time"])
            found.append(LastWord(who, thread.pid, position, f"{NAMES[int(event['kind'])]}{task}", age))
        return sorted(found, key=lambda each: each.event)
