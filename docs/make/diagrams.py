"""The sequence diagrams of docs/protocol.md, made from traces of the simulated world: `make docs`.

Each is in the page between two markers with its name. Here it is a program and the part of its run to draw, chosen by
events and not by step numbers, so that the choice survives a change of minidl.

Legend
    Moment(Kind.YIELDED, 2)   the third event of this kind
    victim 1                  a process of the run: 0 is main, 1 is worker 0
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import minidl
import tracing
from docs.make.markers import between_markers
from minidl.events import Kind
from minidl.world.simulated import Outcome, simulate, sleep
from tracing.trace.event_words import Sentence
from tracing.trace.trace import Trace
from tracing.views.sequence import Sequence, select
from tracing.views.sequence.mermaid import diagram
from tracing.views.sequence.rows import Arrow, Note

FETCH, SLOW, TRAIN = 0.004, 0.020, 0.005  # seconds of virtual time: to make a batch, a slow one; to train on it
LONGEST = 64  # characters of a note
MOST_TRIES = 1_000  # steps of a run at which a process can be killed


class Keys(minidl.Dataset[int]):
    """Map style, sample k is k. Sample `slow` takes longer than any other."""

    def __init__(self, count: int, slow: int = -1) -> None:
        self.count, self.slow = count, slow

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: int) -> int:
        sleep(SLOW if key == self.slow else FETCH)
        return key


class Stream(minidl.IterableDataset[int]):
    """Iterable style: worker 0 has one sample, worker 1 has two."""

    def __iter__(self) -> Iterator[int]:
        info = minidl.get_worker_info()
        assert info is not None
        for sample in range(1 + info.id):
            sleep(FETCH)
            yield sample


def loader(dataset: Any, **options: Any) -> minidl.DataLoader[Any]:
    """Two workers, and a sample a batch: the ids of the tasks are the keys."""
    return minidl.DataLoader(dataset, num_workers=2, collate_fn=list, **options)


def train(batches: Any) -> None:
    for _ in batches:
        sleep(TRAIN)


# ---- the programs


def prepare(worker_id: int) -> None:
    """A worker_init_fn: what a worker does once, before its first task."""
    sleep(FETCH)


def begins() -> None:
    train(loader(Keys(6), pin_memory="host", worker_init_fn=prepare))


def ends() -> None:
    train(loader(Keys(6), pin_memory="host"))


def one_is_slow() -> None:
    train(loader(Keys(10, slow=4)))


def two_epochs() -> None:
    batches = loader(Keys(4), persistent_workers=True)
    train(batches)
    train(batches)


def uneven() -> None:
    train(loader(Stream()))


KEPT: list[Any] = []  # what a program still refers to when it ends


def exits() -> None:
    KEPT[:] = [iter(loader(Keys(20)))]
    next(KEPT[0])
    sys.exit()


def catches() -> None:
    """Catches the error, asks again, and drops the iterator."""
    batches = iter(loader(Keys(8, slow=4)))
    errors = 0
    while errors < 2:
        try:
            next(batches)
            sleep(TRAIN)
        except RuntimeError:
            errors += 1


# ---- the pictures


@dataclass(frozen=True)
class Moment:
    """A moment of a run: when it emits this event."""

    kind: Kind
    count: int = 0  # after how many others of this kind; -1 for the last one
    task: int | None = None  # of this task, if one is given


@dataclass(frozen=True)
class Kill:
    """kill -9 of a process, at the first step at which its latest event is `last` and `after` has been emitted."""

    victim: int
    name: str  # of its column
    last: Moment
    after: Moment


@dataclass(frozen=True)
class Picture:
    """A diagram of the page."""

    name: str  # of its markers
    title: str
    program: Callable[[], None]
    begin: Moment | None = None  # None: with the run
    end: Moment | None = None
    kill: Kill | None = None


PICTURES = [
    Picture("start-up", "Start-up, with a pin thread", begins, end=Moment(Kind.YIELDED)),
    Picture(
        "steady state",
        "Steady state: batch 4 is slow",
        one_is_slow,
        begin=Moment(Kind.YIELDED, task=2),
        end=Moment(Kind.YIELDED, task=6),
    ),
    Picture(
        "resume",
        "A second epoch with persistent workers",
        two_epochs,
        begin=Moment(Kind.EPOCH_END),
        end=Moment(Kind.YIELDED, count=1, task=0),
    ),
    Picture(
        "end of stream",
        "End of stream: worker 0 has 1 sample, worker 1 has 2",
        uneven,
        begin=Moment(Kind.PRIMED),
        end=Moment(Kind.SHUTDOWN_BEGIN),
    ),
    Picture("normal", "Shutdown at the end of an epoch, with a pin thread", ends, begin=Moment(Kind.YIELDED, count=-1)),
    Picture("interpreter exit", "Shutdown at interpreter exit", exits, begin=Moment(Kind.YIELDED)),
    Picture(
        "a worker is killed",
        "kill -9 of worker 0, in the middle of task 4",
        catches,
        begin=Moment(Kind.YIELDED, task=3),
        kill=Kill(1, "worker 0", Moment(Kind.FETCH_BEGIN, task=4), after=Moment(Kind.STORED, task=7)),
    ),
    Picture(
        "main is killed",
        "kill -9 of main, in the middle of a training step",
        catches,
        begin=Moment(Kind.YIELDED, task=3),
        kill=Kill(0, "main", Moment(Kind.YIELDED, task=3), after=Moment(Kind.FETCH_BEGIN, task=7)),
    ),
]


def with_diagrams(text: str) -> str:
    """The page with every picture made anew."""
    for picture in PICTURES:
        text = between_markers(text, f"```mermaid\n{drawn(picture)}```", picture.name)
    return text


@functools.cache
def drawn(picture: Picture) -> str:
    outcome = run(picture)
    trace = tracing.load(outcome)
    begin = seconds(trace, picture.begin) if picture.begin else None
    end = seconds(trace, picture.end) if picture.end else None
    sequence = dataclasses.replace(select(trace, start=begin, end=end, most=None), title=picture.title)
    if picture.kill:
        sequence = with_death(sequence, picture.kill.name, outcome.last_fault_at)
    sequence = dataclasses.replace(sequence, rows=[shortened(row) for row in sequence.rows])
    return re.sub(r"\(([\d.]+) (µs|ms) in (\w+)\)", waited, diagram(sequence))


def shortened(row: Arrow | Note) -> Arrow | Note:
    """An error's text would make its note wider than the whole picture."""
    if isinstance(row, Note) and len(row.words.text()) > LONGEST:
        return dataclasses.replace(row, words=Sentence(row.words.text()[: LONGEST - 1] + "…"))
    return row


def waited(match: re.Match[str]) -> str:
    """How long a message was in its queue. Microseconds mean nothing here: a step of the simulated world takes one."""
    number, unit, queue = match.groups()
    return f"({float(number):.0f} ms in {queue})" if unit == "ms" else f"({queue})"


def with_death(sequence: Sequence, column: str, at: float) -> Sequence:
    """A killed process emits nothing more, so its death is not in the trace."""
    trace = sequence.trace
    before = int(np.searchsorted(trace.events["time"], round(at * 1e9), "right")) - 1
    note = Note(before, column, Kind.WORKER_DIED, Sentence("killed: SIGKILL"))
    place = sum(row.begin <= before for row in sequence.rows)
    return dataclasses.replace(sequence, rows=[*sequence.rows[:place], note, *sequence.rows[place:]])


def run(picture: Picture) -> Outcome:
    """The picture's run. Raises RuntimeError if there is none, or if something is wrong with it."""
    kill = picture.kill
    schedules = (f"{step}.k{kill.victim}" for step in range(1, MOST_TRIES)) if kill else ["0"]
    for schedule in schedules:
        outcome = simulate(picture.program, schedule=schedule)
        if kill is None or kills(outcome, kill):
            if outcome.error or outcome.errors or outcome.deadlock or outcome.left:
                raise RuntimeError(f"{picture.name}: {outcome}")
            return outcome
    raise RuntimeError(f"{picture.name}: there is no such moment")


def kills(outcome: Outcome, kill: Kill) -> bool:
    """Whether the kill came at its moment. The events of the victim's feeder threads do not count."""
    victim = list(outcome.parents)[kill.victim]
    thread = next(number for number, (pid, _) in enumerate(outcome.threads) if pid == victim)
    before = [event for event in outcome.events if event[0] <= round(outcome.last_fault_at * 1e9)]
    own = [event for event in before if event[1] == thread]
    return bool(own) and is_at(own[-1], kill.last) and any(is_at(event, kill.after) for event in before)


def is_at(event: tuple[Any, ...], moment: Moment) -> bool:
    return event[2] == moment.kind and moment.task in (None, event[4])


def seconds(trace: Trace, moment: Moment) -> float:
    """When a run emitted this, in seconds after its first event."""
    events = trace.events
    found = events["kind"] == moment.kind
    if moment.task is not None:
        found &= events["task"] == moment.task
    position = np.flatnonzero(found)[moment.count]
    return float(events["time"][position] - trace.start) / 1e9
