"""The protocol's laws: what must hold in every run of a loader, in whatever order its threads take turns.

A law is a class: a name, a sentence (its docstring), and a small state machine that takes one event after the other and
says what is wrong. What runs them, and over what:

    judge(enumerate(outcome.events))             an exploration, over each run of the simulated world
    judge(events_of(trace))                      tracing.check, over a trace
    judge(enumerate(outcome.events), [InOrder])  an exercise, over a run with the learner's functions. They need not
                                                 emit all that minidl's do: `law.calls` are the events it looks at

A run may be cut short, so the end of the events proves nothing. A law is broken only by an event that must not come
yet: EPOCH_END while a task is under way, SHUTDOWN_END while a worker runs.

Legend
    at       17                        the place of an event in the run, or in the trace
    message  (1 << 32 | 0, 3)          epoch_id and task; STOP, RESUME, ... where it is no task
    life     {3: ("sent", 9)}          what each task (or worker, or slot) is at the moment, and since which event
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

from minidl.events import EPOCH_BEGIN, LOADER, NO_TASK, PUT, RESUME, SENT, STOP, Kind, Queue

INDEX, RESULT = int(Queue.INDEX), int(Queue.RESULT)  # (of an enum it is slow to ask for a member)
NONE = -1  # no task, no worker, no slot
NAMES: dict[int, str] = {kind: kind.name for kind in Kind}


class Event(NamedTuple):
    """What `emit` was called with, when, and by which thread."""

    time: int  # ns
    thread: int
    kind: int
    epoch_id: int
    task: int
    worker: int
    queue: int
    value: int
    text: Any  # of LOADER: num_workers, prefetch_factor and in_order by name; None if they are not known

    @property
    def slot(self) -> str | int:
        """For kinds whose `value` is a slot."""
        return f"{self.value} of worker {self.worker}" if self.value >= 0 else NONE


class Law:
    """Judges one iterator, or one of its epochs: by a table, or by methods named for kinds of events. (A method takes
    precedence over the table.)"""

    name = sentence = ""  # from the name of the class, "first in first out", and its docstring
    calls: ClassVar[dict[int, str]]  # which method is called with which events
    of_epoch = False  # whether it starts afresh with each epoch

    # The table: kind of events -> life before -> life after. None: not begun, or over. Whatever is not in it must not
    # happen.
    steps: ClassVar[dict[int, dict[str | None, str | None]]] = {}
    subject = ""  # whose life it is: "task", or another field of an event
    ends: ClassVar[dict[int, str]] = {}  # when this comes, no life may go on, except like this

    def __init_subclass__(cls) -> None:
        cls.name = re.sub("(?<!^)(?=[A-Z])", " ", cls.__name__).lower()
        cls.sentence = cls.__doc__ or ""
        methods = {kind: kind.name.lower() for kind in Kind if hasattr(cls, kind.name.lower())}
        cls.calls = dict.fromkeys((*cls.steps, *cls.ends), "take_step") | methods

    def __init__(self, first: Event, found: list[Breach]) -> None:
        """`first` is the iterator's first event, LOADER."""
        self.first, self.found = first, found
        self.options: dict[str, Any] = first.text or {}
        self.workers = first.value  # that are active
        self.life: dict[str | int, tuple[str | None, int]] = {}
        self.begin()

    def begin(self) -> None:
        """What it knows at first, besides `life`."""

    def take_step(self, at: int, event: Event) -> None:
        """What the table says of this event."""
        step = self.steps.get(event.kind)
        who = getattr(event, self.subject, "itself")  # the pin thread, say: there is only one
        if step is not None and who != NONE:
            now, since = self.life.get(who, (None, at))
            if now not in step:
                was = now or "not begun, or over"
                self.breaks(f"{self.subject} {who}: {NAMES[event.kind]} when it was {was}", since, at)
            self.life[who] = step.get(now), at
        if event.kind in self.ends:
            for who, (now, since) in self.life.items():
                if now not in (None, self.ends[event.kind]):
                    self.breaks(f"{self.subject} {who}: {NAMES[event.kind]} when it was {now}", since, at)

    def breaks(self, what: str, *events: int) -> None:
        """Noted once: after that, the law no longer knows the state."""
        if all(law is not self for law, _, _ in self.found):
            self.found.append((self, what, sorted({*events})))


Breach = tuple[Law, str, list[int]]  # the law, what happened instead, and the events that show it


# ---- a task's way through the loader


class ExactlyOnce(Law):
    """Every task that is sent is received and yielded exactly once, or skipped, or raised as an error."""

    of_epoch = True
    subject = "task"
    steps: ClassVar = {
        Kind.DISPATCHED: {None: "sent"},
        Kind.RECEIVED: {"sent": "in hand"},
        Kind.STORED: {"in hand": "kept for later"},
        Kind.RELEASED: {"kept for later": "in hand"},
        Kind.YIELDED: {"in hand": None, "failed": None},  # failed: it was the sampler that raised
        Kind.TASK_SKIPPED: {"sent": None, "failed": None},
    }
    ends: ClassVar = {Kind.EPOCH_END: "failed"}

    def yielded(self, at: int, event: Event) -> None:
        if self.workers:  # else nothing is sent
            self.take_step(at, event)

    def error_raised(self, at: int, event: Event) -> None:
        """What is in hand is not a batch: an exception, or the end of a stream."""
        self.life |= {task: ("failed", at) for task, (now, _) in self.life.items() if now == "in hand"}

    worker_exhausted = error_raised


class InOrder(Law):
    """With in_order, batches are yielded in the order in which their keys were drawn."""

    of_epoch = True
    last = NO_TASK

    def yielded(self, at: int, event: Event) -> None:
        if event.task < self.last and self.options.get("in_order", True):
            self.breaks(f"task {event.task} was yielded after task {self.last}", at)
        self.last = event.task


class Bounded(Law):
    """As many tasks as fit are outstanding or held early, and never more: prefetch_factor x num_workers."""

    of_epoch = True
    CHANGES: ClassVar[dict[int, int]] = {Kind.DISPATCHED: 1, Kind.RECEIVED: -1, Kind.STORED: 1, Kind.RELEASED: -1}
    more_keys = True

    def begin(self) -> None:
        self.held: Counter[int] = Counter()  # by worker
        self.fit = self.workers * (self.options.get("prefetch_factor") or 0)

    def count(self, at: int, event: Event) -> None:
        self.held[event.worker] += self.CHANGES[event.kind]
        # Without order each worker has its share, or a slow one would collect all tasks.
        if not self.options.get("in_order", True) and self.held[event.worker] > self.fit // max(1, self.workers):
            self.breaks(f"worker {event.worker} was sent {self.held[event.worker]} tasks at a time", at)

    dispatched = received = stored = released = count

    def yielded(self, at: int, event: Event) -> None:
        """Not before: main sends another task just before it hands a batch out."""
        held = self.held.total()
        if self.fit and (held > self.fit or (held < self.fit and self.more_keys)):
            self.breaks(f"{held} tasks were outstanding or held early, and {self.fit} fit", at)

    def sampler_end(self, at: int, event: Event) -> None:
        self.more_keys = False

    def worker_exhausted(self, at: int, event: Event) -> None:
        self.workers -= 1

    no_capacity = error_raised = sampler_end


class Sticky(Law):
    """After a task is lost nothing more is yielded: an error is raised, and stays."""

    subject = "the iterator"
    steps: ClassVar = {
        Kind.TASK_LOST: {None: "missing a task", "missing a task": "missing a task"},
        Kind.YIELDED: {None: None},
        Kind.EPOCH_END: {None: None},
    }


# ---- queues and workers


class FirstInFirstOut(Law):
    """A queue gives its messages in the order in which they were put, none twice."""

    def begin(self) -> None:
        # (queue, worker, where) -> messages. Some may not come: main or the worker was interrupted or killed.
        self.line: dict[tuple[int, int, int], deque[tuple[int, int]]] = defaultdict(deque)

    def put(self, at: int, event: Event) -> None:
        self.line[event.queue, event.worker, PUT].append((event.epoch_id, event.task))

    def sent(self, at: int, event: Event) -> None:
        self.take(at, event, PUT)
        self.line[event.queue, event.worker, SENT].append((event.epoch_id, event.task))

    def got(self, at: int, event: Event) -> None:
        """data_queue has no pipe; and what torch's feeder threads do is not recorded."""
        if event.task != NO_TASK:  # else it could not be unpickled
            self.take(at, event, SENT if (event.queue, event.worker, SENT) in self.line else PUT)

    def take(self, at: int, event: Event, last: int) -> None:
        line = self.line[event.queue, event.worker, last]
        if (event.epoch_id, event.task) not in line:
            what = f"{NAMES[event.kind]} of task {event.task} out of turn"
            self.breaks(f"{Queue(event.queue).name} queue of worker {event.worker}: {what}", at)
        while line and line.popleft() != (event.epoch_id, event.task):
            pass


class OneAtATime(Law):
    """A worker works on one task at a time, only on its own, and on none after the message to stop."""

    def begin(self) -> None:
        self.has: dict[int, tuple[int, int]] = {}  # worker -> the message that it took last

    def got(self, at: int, event: Event) -> None:
        if event.queue == INDEX and self.has.get(event.worker, (0, 0))[1] != STOP:
            self.has[event.worker] = event.epoch_id, event.task

    def fetch_begin(self, at: int, event: Event) -> None:
        if event.worker >= 0 and event.task >= 0 and self.has.get(event.worker) != (event.epoch_id, event.task):
            self.breaks(f"worker {event.worker} worked on task {event.task}, which it did not hold", at)

    fetch_end = collate_begin = collate_end = fetch_failed = stream_end = fetch_begin

    def put(self, at: int, event: Event) -> None:
        if event.queue == RESULT and event.task >= 0:
            self.fetch_begin(at, event)
            self.has.pop(event.worker, None)  # it answers once


class Resumed(Law):
    """Every worker acknowledges that it resumed before the first task of the epoch is sent."""

    subject = "worker"
    steps: ClassVar = {
        Kind.PUT: {None: "resuming", "resuming": "resuming"},
        Kind.WORKER_RESUMED: {"resuming": "resuming"},
        Kind.RESUME_ACKNOWLEDGED: {"resuming": None},
    }
    ends: ClassVar = {Kind.DISPATCHED: ""}

    def put(self, at: int, event: Event) -> None:
        if event.task == RESUME and event.queue == INDEX:
            self.take_step(at, event)


# ---- the end


class PinThreadFirst(Law):
    """At shutdown the pin thread is stopped before the workers."""

    subject = "the pin thread"
    steps: ClassVar = {Kind.PIN_THREAD_BEGIN: {None: "running"}, Kind.PIN_JOINED: {"running": None}}
    ends: ClassVar = {Kind.DONE_SET: "", Kind.JOIN_BEGIN: ""}


class Joined(Law):
    """Every process that started is joined or terminated when the shutdown ends."""

    subject = "worker"
    steps: ClassVar = {
        Kind.WORKER_STARTED: {None: "running"},
        Kind.WORKER_JOINED: {None: None, "running": None},
        Kind.WORKER_TERMINATED: {None: None, "running": None},
    }
    ends: ClassVar = {Kind.SHUTDOWN_END: ""}


class ShutdownIsTheEnd(Law):
    """Main, the pin thread and the feeders do nothing after the shutdown is complete."""

    is_over = is_late = False

    def pin_joined(self, at: int, event: Event) -> None:
        self.is_late = not event.value  # main has waited for the thread in vain, and carries on without it

    def shutdown_end(self, at: int, event: Event) -> None:
        self.is_over = not self.is_late

    def closed(self, at: int, event: Event) -> None:
        if self.is_over:
            self.breaks(f"{NAMES[event.kind]} after SHUTDOWN_END", at)

    dispatched = received = pin_begin = pin_thread_end = feeder_end = closed


# ---- slots: see minidl.transport


class SlotsInTurn(Law):
    """A slot is granted when its last batch is gone or did not need it, lent when it is granted, and freed once."""

    subject = "slot"
    steps: ClassVar = {
        Kind.SLOT_GRANTED: {None: "granted", "granted": "granted"},
        Kind.SLOT_LENT: {"granted": "lent"},
        Kind.SLOT_FREE: {"lent": None},
    }


LAWS: list[type[Law]] = Law.__subclasses__()  # all of the above


def judge(events: Iterable[tuple[int, Event]], laws: Iterable[type[Law]] = LAWS) -> list[Breach]:
    """The breaches of these laws in the events of a run, at most one per law and iterator. An iterator built before the
    first event, so that its LOADER is missing, is not judged."""
    found: list[Breach] = []
    judges: dict[int, list[Law]] = {}  # by epoch_id
    calls: dict[int, dict[int, list[Any]]] = {}  # by epoch_id and kind of event
    for at, event in events:
        if (own := calls.get(event.epoch_id)) is None:
            same = judges.get(event.value, []) if event.kind == EPOCH_BEGIN else []  # persistent workers
            anew = [type(law)(law.first, found) if law.of_epoch else law for law in same]
            judges[event.epoch_id] = anew or [law(event, found) for law in laws if event.kind == LOADER]
            own = calls[event.epoch_id] = defaultdict(list)
            for law in judges[event.epoch_id]:
                for kind, method in law.calls.items():
                    own[kind].append(getattr(law, method))
        for call in own.get(event.kind, ()):
            call(at, event)
    return found
