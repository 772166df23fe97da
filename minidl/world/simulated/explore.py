"""`explore(program)`: every schedule within bounds, or many random ones, each judged.

The bounds are on departures from the default schedule: the number of delays (the thread whose turn it is lets others
run first) and of faults. Most bugs need few of them, and within such bounds every schedule can be tried. (Emmi,
Qadeer, Rakamarić: Delay-Bounded Scheduling, POPL 2011.)

From the same state no move is tried twice: two runs that reach it continue alike. A thread's state follows from what
its calls to the world have returned; so the returned values of all threads, and what they share, identify the state. (A
run that comes to a state that was seen still goes on to its end: a judge sees whole runs.)
"""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from minidl.events import Kind
from minidl.laws import LAWS, Law, judge
from minidl.world.simulated.cores import SECOND
from minidl.world.simulated.faults import Fault, Move, possible_faults
from minidl.world.simulated.machine import BEGIN, Machine
from minidl.world.simulated.processes import Thread
from minidl.world.simulated.schedule import Priorities, Random, Schedule
from minidl.world.simulated.simulation import SETTLED, Outcome, simulate

REPLAY_EVERY = 50  # schedules; every 50th is run a second time, and must do the same; then garbage is collected
NOTICED = 1.01  # virtual seconds from a kill or Ctrl-C until all processes have ended: a second, and a few steps

Judge = Callable[[Outcome], "list[str]"]


@dataclass
class Exploration:
    """The result of an exploration."""

    schedules: int = 0  # that were run
    pruned: int = 0  # that were not, as they lead to states already seen
    steps: int = 0  # of all runs together
    counterexample: Outcome | None = None  # shortened
    broken: list[str] = field(default_factory=list)  # what does not hold in it

    def __str__(self) -> str:
        runs = f"{self.schedules:,} schedules run, {self.pruned:,} more lead to states already seen"
        if self.counterexample is None:
            return f"{runs}: nothing found"
        repeat = f'simulate(program, schedule="{self.counterexample.token}")'
        return f"{runs}. Found: {'; '.join(self.broken)}\n  repeat: {repeat}"


class Exploring(Schedule):
    """A schedule that notes what else could have happened after its last move."""

    compares = True

    def __init__(self, moves: Iterable[Move], delays: int, faults: int) -> None:
        """`delays` and `faults`: how many more it may get."""
        super().__init__(moves)
        self.delays, self.faults = delays, faults
        self.after = self.moves[-1].step if self.moves else 0
        self.others: list[tuple[int, Move, int, int]] = []  # key of state and move, move, delays left, faults left

    def choose(self, machine: Machine) -> Thread | None:
        chosen = super().choose(machine)
        # At the step of its last fault other threads may still run first; after a RUN that is decided.
        if machine.step > self.after or (machine.step == self.after and self.moves[-1].what is not Fault.RUN):
            self._note(machine, chosen)
        return chosen

    def _note(self, machine: Machine, default: Thread | None) -> None:
        faults = possible_faults(machine) if self.faults else []
        others = [(fault, (self.delays, self.faults - 1)) for fault in faults]  # move, (delays left, faults left)
        thread = default
        for cost in range(1, self.delays + 1):
            thread = machine.next_able(thread.number + 1) if thread is not None else None
            if thread is None or thread is default:
                break
            others.append((Move(machine.step, Fault.RUN, thread.number), (self.delays - cost, self.faults)))
        state = machine.state() if others else 0  # of a run that can depart no more, none is needed
        self.others += [(hash((state, move.what, move.number)), move, *left) for move, left in others]


def explore(
    program: Callable[[], Any],
    *,
    delays: int = 2,
    faults: int = 0,
    judge: Judge | None = None,
    most: int | None = None,
    **options: Any,
) -> Exploration:
    """Run every schedule with at most `delays` and `faults`, depth first; at most `most` of them.

    `judge` lists what does not hold in an outcome; by default it is `what_must_hold`, compared with a run of the
    default schedule. The exploration ends at the first counterexample. `options` are those of `simulate`.
    """
    found = Exploration()
    _run(program, itertools.islice(_within(delays, faults, found), most), judge, found, options)
    return found


def explore_by_chance(
    program: Callable[[], Any],
    schedules: int,
    *,
    faults: int = 0,
    seed: int = 0,
    judge: Judge | None = None,
    **options: Any,
) -> Exploration:
    """Run this many random `schedules`, of Random and Priorities in turn, each with at most `faults`."""
    usual = simulate(program, **options).steps
    kinds = itertools.cycle((Random, Priorities))
    drawn = (kind(seed + number, faults, usual) for number, kind in zip(range(schedules), kinds, strict=False))
    found = Exploration()
    _run(program, drawn, judge, found, options)
    return found


def _within(delays: int, faults: int, found: Exploration) -> Iterator[Exploring]:
    """The schedules within bounds that lead to new states."""
    pending: list[tuple[tuple[Move, ...], int, int]] = [((), delays, faults)]
    seen: dict[int, list[tuple[int, int]]] = {}
    while pending:
        schedule = Exploring(*pending.pop())
        yield schedule  # the caller runs it, which fills `others`
        for key, move, delays, faults in reversed(schedule.others):
            budgets = seen.setdefault(key, [])
            if any(d >= delays and f >= faults for d, f in budgets):
                found.pruned += 1
            else:
                budgets.append((delays, faults))
                pending.append(((*schedule.moves, move), delays, faults))


def _run(program: Any, schedules: Iterable[Schedule], judge: Judge | None, found: Exploration, options: Any) -> None:
    """Up to the first counterexample."""
    if judge is None:
        judge = functools.partial(what_must_hold, expected=simulate(program, **options))

    collects = gc.isenabled()
    gc.disable()
    try:
        for schedule in schedules:
            outcome = simulate(program, schedule=schedule, **options)
            found.schedules += 1
            found.steps += outcome.steps
            if judge(outcome):
                found.counterexample, found.broken = shorten(outcome, judge, options)
                break
            if found.schedules % REPLAY_EVERY == 0:
                repeat(outcome, options)
                gc.collect(1)  # what is new: to look through all of torch takes long
    finally:
        if collects:
            gc.enable()


def repeat(outcome: Outcome, options: dict[str, Any]) -> Outcome:
    """Run it once more. AssertionError: something else happened. Then the schedule alone does not determine a run, and
    nothing here can be trusted."""
    second = simulate(outcome.program, schedule=outcome.token, **options)
    for k, (before, now) in enumerate(itertools.zip_longest(outcome.events, second.events)):
        assert before == now, f"schedule {outcome.token}, event {k}: {before} the first time, {now} the second"
    return second


def shorten(outcome: Outcome, judge: Judge, options: dict[str, Any]) -> tuple[Outcome, list[str]]:
    """Repeat a counterexample to make sure of it, and leave out every move that it does not need."""
    best = repeat(outcome, options)
    moves = list(outcome.schedule.moves)
    for move in reversed(moves.copy()):
        fewer = [each for each in moves if each is not move]
        tried = simulate(outcome.program, schedule=Schedule(fewer), **options)
        if judge(tried):
            best, moves = tried, fewer
    return best, judge(best)


# ---- what must hold


def what_must_hold(
    outcome: Outcome, expected: Outcome, slow: bool = False, laws: Iterable[type[Law]] = LAWS
) -> list[str]:
    """What must hold on every schedule, but does not in this outcome. `expected` is a run without faults;
    `slow` says that the program makes somebody wait, so that a timeout may be due."""
    faults = [move for move in outcome.schedule.moves if move.what is not Fault.RUN]
    if outcome.deadlock:
        return ["deadlock: no thread can run, and no timeout is left"]
    if outcome.endless:
        return ["it goes on for ever"]
    broken = []
    if outcome.error is None and outcome.exitcode == 0 and outcome.result != expected.result:
        broken.append(f"it returned {outcome.result!r} instead of {expected.result!r}, and raised nothing")
    if isinstance(outcome.error, AssertionError):
        broken.append(f"the program found that {outcome.error}")
    elif outcome.error is not None and not faults:
        broken.append(f"it raised {outcome.error!r}")
    for name, error in outcome.errors:
        # Ctrl-C ends workers wherever they are: not pretty, but harmless, as main was interrupted, too.
        if not (isinstance(error, KeyboardInterrupt) and any(move.what is Fault.INTERRUPT for move in faults)):
            broken.append(f"{name} died of {error!r}")
    broken += [f"only printed: {each}" for each in outcome.swallowed if "KeyboardInterrupt" not in each]
    broken += [f"process {pid} is left" for pid, code in outcome.exitcodes.items() if code is None]
    interrupts = sum(move.what is Fault.INTERRUPT for move in faults)
    if not interrupts:
        broken += [f"no shared memory was removed after {name}" for name in outcome.unswept]
    if interrupts < 2:  # a second Ctrl-C interrupts the clean-up after the first
        broken += [f"{outcome.open_pipes} ends of pipes are left open"] * bool(outcome.open_pipes)
        broken += [f"{name} is left when the program returns" for name in outcome.left]
    if not faults:
        codes = outcome.exitcodes.items() - expected.exitcodes.items()  # the program itself may kill
        broken += [f"process {pid} ended with exit code {code}" for pid, code in sorted(codes) if code]
    broken += [f"{law.name}: {what}" for law, what, _ in judge(enumerate(outcome.events), laws)]
    broken += _late(outcome, faults, expected)
    return broken if faults or slow else broken + _needless(outcome, expected)


SECOND_LINE = Kind.TIMED_OUT, Kind.WORKER_DIED, Kind.WORKER_TERMINATED, Kind.WORKER_KILLED
# Virtual seconds. A run in which nobody waits for a timeout takes thousands of steps of a microsecond; where a worker
# is still about to end when the program returns, `simulate` gives it some time.
PROMPT = 0.1 + SETTLED


def _needless(outcome: Outcome, expected: Outcome) -> list[str]:
    """Where nothing fails and nobody is slow, the first line of defence suffices: no timeout fires, nobody looks after
    the workers or ends them by force. Otherwise the second line would hide that the first is broken."""
    found = {event[2] for event in outcome.events}
    broken = [f"nothing failed, and yet {kind.who}: {kind.name}" for kind in SECOND_LINE if kind in found]
    if outcome.lasted > expected.lasted + PROMPT:
        broken.append(f"nothing failed, and it took {outcome.lasted - expected.lasted:.1f} s longer than it should")
    return broken


def _late(outcome: Outcome, faults: list[Move], expected: Outcome) -> list[str]:
    """A death or Ctrl-C is noticed within a second; where nothing goes wrong no process waits for long."""
    if any(move.what is Fault.TIMEOUT for move in faults) or None in outcome.exitcodes.values():
        return []
    since = max(outcome.last_fault_at, BEGIN / SECOND)
    took = max(outcome.ended.values()) - since
    return [f"it took {took:.1f} s until all processes had ended"] if took > NOTICED + expected.lasted else []
