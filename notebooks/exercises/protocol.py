"""Grading in the simulated world: run a program with the learner's functions under many schedules, and check the rules
of the protocol on each run.

A rule looks at the events of a run and returns what breaks it, and where. It uses only events that the learner's
functions need not emit: what goes through the queues, what main asks for and gets, what dies and what ends.

Legend
    play(program, rules)    None, or the first run that breaks a rule
    rule                    Rule("in order", "batches leave in the sampler's order", function of a Run)
    run                     the events of a simulated run as a numpy structured array, and its outcome
"""

from __future__ import annotations

import functools
import gc
import itertools
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minidl.events import Kind, Queue
from minidl.world.simulated import Outcome, explore_by_chance, simulate
from minidl.world.simulated.explore import shorten
from minidl.world.simulated.schedule import Recorded
from notebooks.exercises.heartbeat import beat

FIELDS = ("time", "thread", "kind", "epoch", "task", "worker", "queue", "value")
CHANCE = 150  # random schedules for each program
LABEL = 60  # characters beside the line in a picture


@dataclass
class Run:
    """What happened in a simulated run."""

    outcome: Outcome

    @functools.cached_property
    def events(self) -> np.ndarray:
        """One row per event, in order of time: the fields are FIELDS, all int64."""
        return np.array([event[:8] for event in self.outcome.events], dtype=[(name, np.int64) for name in FIELDS])

    @property
    def never_ends(self) -> bool:
        return self.outcome.deadlock or self.outcome.endless

    def of(self, *kinds: Kind, queue: Queue | None = None, task: int | None = None) -> np.ndarray:
        """The positions of the events of these kinds; only of one queue or task (STOP, say), if given."""
        seen = np.isin(self.events["kind"], kinds)
        if queue is not None:
            seen &= self.events["queue"] == queue
        if task is not None:
            seen &= self.events["task"] == task
        return np.flatnonzero(seen)

    def key(self, position: int) -> tuple[int, int, int]:
        """(epoch, task, worker) of an event."""
        event = self.events[position]
        return int(event["epoch"]), int(event["task"]), int(event["worker"])

    def worker(self, position: int) -> int:
        return self.key(position)[2]

    def tasks_sent(self) -> Iterator[tuple[int, int, int]]:
        """(position, task, worker) of each task that main has sent."""
        for position in self.of(Kind.PUT, queue=Queue.INDEX):
            _, task, worker = self.key(position)
            if task >= 0:
                yield int(position), task, worker


@dataclass(frozen=True)
class Breach:
    """How a rule is broken."""

    what: str  # "batch 2 was yielded where batch 1 was due"
    events: list[int] = field(default_factory=list)  # that show it

    @property
    def label(self) -> str:
        """What happened, as short as a picture needs it."""
        return textwrap.shorten(self.what.partition("\n")[0], LABEL, placeholder=" …")


@dataclass(frozen=True)
class Rule:
    """What must hold in every run of a right answer."""

    name: str
    sentence: str
    look: Callable[[Run], Iterable[Breach]]


@dataclass
class Broken:
    """A run that breaks a rule."""

    rule: str
    sentence: str
    breach: Breach
    token: str  # repeats the run: simulate(program, schedule=token)
    waits: str  # which thread waits for what, if nothing can go on
    error: str  # what the program raised
    result: str
    outcome: Outcome | None = None
    trace: Path | None = None  # once it is saved
    picture: Path | None = None
    replaced: dict[str, Any] | None = None  # what the trace is to say of the answer: see departure.py

    @property
    def run(self) -> Run:
        """Until it is saved."""
        assert self.outcome is not None
        return Run(self.outcome)

    def save(self, folder: Path, name: str) -> None:
        """Write the trace to folder/NAME.trace, and its timeline, with the breach marked, to NAME.png."""
        import shutil

        import tracing
        from tracing.recording import simulated_run as simulated

        outcome, self.outcome = self.outcome, None  # which could not be sent to another process
        if outcome is None or not outcome.events:
            return
        path = folder / f"{name}.trace"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        simulated.write(outcome, path, self.replaced)
        self.trace = path
        notes = [(event, self.breach.label) for event in self.breach.events[-1:]]
        try:
            tracing.timeline(tracing.load(path), notes=notes).savefig(folder / f"{name}.png", dpi=110)
        except ValueError:  # nothing to draw: it failed before there was a loader
            return
        self.picture = folder / f"{name}.png"


class OneSlowThread(Recorded):
    """One thread runs only when no other can: a slow worker, a slow feeder."""

    def __init__(self, number: int) -> None:
        super().__init__(seed=0, faults=0, horizon=1)
        self.slow = number

    def pick(self, machine: Any, default: Any) -> Any:
        return machine.next_able(self.slow + 1) if default.number == self.slow else default


def play(
    program: Callable[[], Any],
    rules: Iterable[Rule],
    *,
    faults: int = 0,
    chance: int = CHANCE,
    schedules: Iterable[str] = (),
    **options: Any,
) -> Broken | None:
    """Run the program under the default schedule, under `schedules`, with each thread slow in turn, and under `chance`
    random schedules with at most `faults` faults. Returns the first run that breaks a rule, shortened."""
    rules = list(rules)
    options.setdefault("draws", False)
    beat("a run of the program")
    first = simulate(program, **options)
    broken = _judged(first, rules)
    if broken is not None:
        return broken
    for token in schedules:
        beat(f"a run with the schedule {token}")
        broken = _judged(simulate(program, schedule=token, **options), rules)
        if broken is not None:
            return broken

    def judge(outcome: Outcome) -> list[str]:
        beat("a run with another schedule")
        return [rule.name for rule in rules for _ in itertools.islice(rule.look(Run(outcome)), 1)]

    for number in range(1, len(first.threads)):
        outcome = simulate(program, schedule=OneSlowThread(number), **options)
        if judge(outcome):
            return _judged(shorten(outcome, judge, options)[0], rules)
    found = explore_by_chance(program, chance, faults=faults, judge=judge, usual=first.steps, **options)
    return None if found.counterexample is None else _judged(found.counterexample, rules)


def _judged(outcome: Outcome, rules: list[Rule]) -> Broken | None:
    run = Run(outcome)
    for rule in rules:
        for breach in rule.look(run):
            return broken_by(outcome, rule.name, rule.sentence, breach)
    return None


def broken_by(outcome: Outcome, name: str, sentence: str, breach: Breach) -> Broken:
    import tracing
    from tracing.analysis.hang.explain import explain

    waits = str(explain(tracing.load(outcome)) or "") if outcome.deadlock or outcome.endless else ""
    error = f"{type(outcome.error).__name__}: {outcome.error}" if outcome.error is not None else ""
    return Broken(name, sentence, breach, outcome.token, waits, error, repr(outcome.result), outcome)


# ---- rules


def gives(*expected: Any) -> Rule:
    """The program returns one of these."""

    def look(run: Run) -> Iterator[Breach]:
        ended = run.outcome.error is None and not run.never_ends
        if ended and run.outcome.result not in expected:
            yield Breach(f"it returned {run.outcome.result!r}, not {expected[0]!r}", _last(run, Kind.YIELDED))

    return Rule("the right batches", "each sample comes once, in the right batch", look)


def _last(run: Run, *kinds: Kind) -> list[int]:
    at = run.of(*kinds)
    return [int(at[-1])] if len(at) else []


def _raises_nothing(run: Run) -> Iterator[Breach]:
    error = run.outcome.error
    if error is not None:
        at = run.of(Kind.ERROR_RAISED)
        yield Breach(f"it raised {type(error).__name__}: {error}", [int(at[0])] if len(at) else [len(run.events) - 1])


def _comes_to_an_end(run: Run) -> Iterator[Breach]:
    if run.outcome.deadlock:
        yield Breach("every thread waits, and none can ever go on", [len(run.events) - 1])
    elif run.outcome.endless:
        yield Breach("it goes on for ever", [len(run.events) - 1])


def _in_order(run: Run) -> Iterator[Breach]:
    due: dict[int, int] = {}
    for position in run.of(Kind.YIELDED):
        epoch, task, _ = run.key(position)
        if task != due.get(epoch, 0):
            yield Breach(f"batch {task} was yielded where batch {due.get(epoch, 0)} was due", [int(position)])
        due[epoch] = task + 1


def _without_garbage(outcome: Outcome) -> Outcome:
    """The same; if something was left when the program had returned, a run in which garbage is collected then. What
    only a cycle keeps alive is no mistake: contextlib.ExitStack makes one of an exception."""
    if not outcome.left and not outcome.open_pipes:
        return outcome

    def program() -> Any:
        result = outcome.program()
        gc.collect()
        return result

    gc.collect()  # what earlier runs have left is none of this one's business
    return simulate(program, schedule=outcome.token, **outcome.options)


def _leaves_nothing(run: Run) -> Iterator[Breach]:
    outcome = _without_garbage(run.outcome)
    left = [*outcome.left, *[f"{outcome.open_pipes} ends of pipes"] * bool(outcome.open_pipes)]
    if left:
        yield Breach(f"still there when the program has ended: {', '.join(left)}", [len(run.events) - 1])


def never_more_than(most: int) -> Rule:
    """At most `most` tasks are sent and not yet yielded."""

    def look(run: Run) -> Iterator[Breach]:
        held = 0
        for position in run.of(Kind.PUT, Kind.YIELDED):
            event = run.events[position]
            if event["kind"] == Kind.YIELDED:
                held -= 1
            elif event["queue"] == Queue.INDEX and event["task"] >= 0:
                held += 1
                # While a batch is being yielded, the task that replaces it may already be sent.
                if held > most + 1:
                    yield Breach(
                        f"task {event['task']} was sent while {held - 1} batches were held; {most} are allowed",
                        [int(position)],
                    )

    return Rule("a bound on what is held", f"at most prefetch_factor * num_workers = {most} batches are held", look)


def in_turns(workers: int) -> Rule:
    """Tasks 0, 1, 2, ... go to workers 0, 1, ..., 0, 1, ..."""

    def look(run: Run) -> Iterator[Breach]:
        for position, task, worker in run.tasks_sent():
            if worker != task % workers:
                yield Breach(
                    f"task {task} was sent to worker {worker}; it was worker {task % workers}'s turn", [position]
                )

    return Rule("in turns", "tasks go round the workers: 0, 1, 0, 1, ...", look)


RAISES_NOTHING = Rule("no error", "a correct program raises nothing", _raises_nothing)
COMES_TO_AN_END = Rule("comes to an end", "nothing waits for what never comes", _comes_to_an_end)
IN_ORDER = Rule("in order", "batches leave in the sampler's order, in whatever order they arrive", _in_order)
LEAVES_NOTHING = Rule("nothing is left", "after the program no process, thread or pipe is left", _leaves_nothing)
ALWAYS = (COMES_TO_AN_END, RAISES_NOTHING, LEAVES_NOTHING)
