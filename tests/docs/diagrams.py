"""The sequence diagrams of docs/protocol.md, made from traces of the simulated world: `make docs`, or

python -m tests.docs.diagrams docs/protocol.md

Each stands in the page between two markers that bear its name. Here it is a program and the part of its run that is
drawn, chosen by what the run says and not by a number of a step, so that a change of minidl moves the choice along.

Legend
    Said(Kind.YIELDED, 2)     the third time that the run says this
    victim 1                  a process of the run: 0 is main, 1 worker 0
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import minidl
import tracing
from minidl.events import Kind
from minidl.world.simulated import Outcome, simulate, sleep
from tests.benchmarks.table import between_markers
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
class Said:
    """A moment of a run: it says this."""

    kind: Kind
    count: int = 0  # after how many others of this kind; -1 for the last one
    task: int | None = None  # of this task, if one is given


@dataclass(frozen=True)
class Kill:
    """kill -9 of a process, at the first step at which it has just said `last`, and anybody has said `after`."""

    victim: int
    name: str  # of its column
    last: Said
    after: Said


@dataclass(frozen=True)
class Picture:
    """A diagram of the page."""

    name: str  # of its markers
    title: str
    program: Callable[[], None]
    begin: Said | None = None  # None: with the run
    end: Said | None = None
    kill: Kill | None = None


PICTURES = [
    Picture("start-up", "Start-up, with a pin thread", begins, end=Said(Kind.YIELDED)),
    Picture(
        "steady state",
        "Steady state: batch 4 is slow",
        one_is_slow,
        begin=Said(Kind.YIELDED, task=2),
        end=Said(Kind.YIELDED, task=6),
    ),
    Picture(
        "resume",
        "A second epoch with persistent workers",
        two_epochs,
        begin=Said(Kind.EPOCH_END),
        end=Said(Kind.YIELDED, count=1, task=0),
    ),
    Picture(
        "end of stream",
        "End of stream: worker 0 has 1 sample, worker 1 has 2",
        uneven,
        begin=Said(Kind.PRIMED),
        end=Said(Kind.SHUTDOWN_BEGIN),
    ),
    Picture("normal", "Shutdown at the end of an epoch, with a pin thread", ends, begin=Said(Kind.YIELDED, count=-1)),
    Picture("interpreter exit", "Shutdown at interpreter exit", exits, begin=Said(Kind.YIELDED)),
    Picture(
        "a worker is killed",
        "kill -9 of worker 0, in the middle of task 4",
        catches,
        begin=Said(Kind.YIELDED, task=3),
        kill=Kill(1, "worker 0", Said(Kind.FETCH_BEGIN, task=4), after=Said(Kind.STORED, task=7)),
    ),
    Picture(
        "main is killed",
        "kill -9 of main, in the middle of a training step",
        catches,
        begin=Said(Kind.YIELDED, task=3),
        kill=Kill(0, "main", Said(Kind.YIELDED, task=3), after=Said(Kind.FETCH_BEGIN, task=7)),
    ),
]


def main(page: Path) -> int:
    page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def rewritten(text: str) -> str:
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
        sequence = with_death(sequence, picture.kill.name, outcome.struck_at)
    sequence = dataclasses.replace(sequence, rows=[shortened(row) for row in sequence.rows])
    return re.sub(r"\(([\d.]+) (µs|ms) in (\w+)\)", lay, diagram(sequence))


def shortened(row: Arrow | Note) -> Arrow | Note:
    """An error's text would make its note wider than the whole picture."""
    if isinstance(row, Note) and len(row.words.text()) > LONGEST:
        return dataclasses.replace(row, words=Sentence(row.words.text()[: LONGEST - 1] + "…"))
    return row


def lay(match: re.Match[str]) -> str:
    """How long a message lay in its queue. A step of the simulated world takes a virtual microsecond: how many of these
    there were says nothing."""
    number, unit, queue = match.groups()
    return f"({float(number):.0f} ms in {queue})" if unit == "ms" else f"({queue})"


def with_death(sequence: Sequence, column: str, at: float) -> Sequence:
    """Who is killed says nothing any more, so the trace does not say it either."""
    trace = sequence.trace
    before = int(np.searchsorted(trace.events["time"], round(at * 1e9), "right")) - 1
    note = Note(before, column, Kind.WORKER_DIED, -1, Sentence("killed: SIGKILL"))
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
    """Whether the kill came at its moment. What the victim's feeder threads said does not count."""
    victim = list(outcome.parents)[kill.victim]
    thread = next(number for number, (pid, _) in enumerate(outcome.threads) if pid == victim)
    before = [event for event in outcome.events if event[0] <= round(outcome.struck_at * 1e9)]
    own = [event for event in before if event[1] == thread]
    return bool(own) and says(own[-1], kill.last) and any(says(event, kill.after) for event in before)


def says(event: tuple[Any, ...], said: Said) -> bool:
    return event[2] == said.kind and said.task in (None, event[4])


def seconds(trace: Trace, said: Said) -> float:
    """When a run said this, after its first event."""
    events = trace.events
    found = events["kind"] == said.kind
    if said.task is not None:
        found &= events["task"] == said.task
    position = np.flatnonzero(found)[said.count]
    return float(events["time"][position] - trace.start) / 1e9


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/protocol.md")))
