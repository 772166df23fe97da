"""The judge: under every tried schedule and fault the laws of the protocol hold, and the loader gives what minidl's own
gives: the same values, in the same order, and the same kinds of exceptions. Never their texts, never what was called
first, never the calls of `emit`.

It tries the most likely schedules first, all programs under each; then random ones; real processes last.
"""

from __future__ import annotations

import functools
import gc
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from minidl.events import Kind
from minidl.world.simulated import Outcome, explore_by_chance, simulate
from minidl.world.simulated.explore import shorten
from minidl.world.simulated.faults import Fault
from minidl.world.simulated.schedule import Recorded, Schedule
from notebooks.exercises import calls, laws, parts
from notebooks.exercises.answers import Answer
from notebooks.exercises.programs import PROGRAMS, Program

STEPS = 6_000  # at most in a run; a right one takes some hundreds
LATE = 1.01  # virtual seconds that a run may last longer than minidl's, and that main may need to notice a death
LONGEST = 200  # characters of a value that are shown
BY_NAME = {each.name: each for each in [*PROGRAMS, *parts.SHUTDOWN, *parts.QUEUE, *parts.SLOTS, parts.SWALLOWED]}

MAPS = ["eight", "errors", "an odd error", "epochs left", "no batches but None", "two at once", "worker_init_fn raises"]
OF = {
    5: [
        "ten",
        "four",
        "one and four",
        "none",
        "one at a time",
        "failing keys",
        "three streams",
        "the last stream goes on",
        "an end",
        "a slow one",
        "keys one by one",
        *MAPS,
    ],
    6: [
        *(
            "errors",
            "slow and dropped",
            "two epochs of streams",
            "worker_init_fn raises",
            "keys that cannot be pickled",
        ),
        *("main dies", "dropped", "StopIteration", "a stream goes on", "None unbatched", "streams that restart"),
        *("an odd error", "an end", "a stream fails", "three streams", "places, pinned", "interrupted"),
        "Ctrl-C is swallowed",
    ],
    7: [*MAPS, "a slow one", "none", "one at a time", "failing keys", "timeout"],
    8: [
        *("eight in any order", "a slow one in any order", "errors in any order", "failing keys in any order"),
        *("none in any order", "one at a time in any order"),
    ],
    9: [
        *("four and one", "an end", "an end, persistent", "two epochs of streams", "drop_last", "three streams"),
        *("unbatched streams", "streams of None", "None unbatched", "streams that restart", "a stream fails"),
        *("a stream goes on", "eight", "errors"),
    ],
    10: [
        *("pinned", "an error, pinned", "pinning raises", "a message is lost", "two epochs, pinned", "streams, pinned"),
        *("the pin thread dies", "places, pinned"),
    ],
    11: [
        *("an epoch left", "two epochs", "an epoch with an error left", "two epochs of streams", "the next epoch"),
        *("the handshake's timeout", "a death between epochs", "epochs left", "three streams"),
    ],
    12: [
        *(
            "a stream has ended",
            "slow",
            "a slow stream",
            "one is killed",
            "a death unnoticed",
            "two deaths unnoticed",
            "a death unnoticed, pinned",
            "a death unnoticed, after an end",
            "the pin thread dies",
        ),
        *("the next epoch", "both are killed", "a worker exits", "the pin thread dies late", "killed", "interrupted"),
        *("two epochs of streams", "a message is lost after an end"),
    ],
    13: [each.name for each in parts.SHUTDOWN] + ["slow and dropped", "two epochs of streams", "errors"],
    14: [each.name for each in parts.QUEUE],
    16: [each.name for each in parts.SLOTS],
}


def programs(number: int) -> list[Program]:
    """What the answers to an exercise are tried with."""
    own = calls.calls(number) if number in calls.CALLS else []
    real = {1: "eight", 2: "eight", 3: "ten", 4: "eight"}  # calls are enough; then a loader with real processes
    return [*own, *(BY_NAME[name] for name in OF.get(number, [real[number]] if number in real else []))]


@dataclass
class Failure:
    """A program in which an answer does not do what it should."""

    program: Program
    breach: laws.Breach
    outcome: Outcome | None = None  # of a run in the simulated world
    error: BaseException | None = None  # that the answer's lines have raised
    harm: str = ""  # what else is broken, if the breach is of a law that names a mistake before it does harm

    @property
    def key(self) -> str:
        """How it fails, to compare it with the failures of known mistakes."""
        error = self.error
        kind = self.breach.what if error is None else " ".join([type(error).__name__, *str(error).splitlines()[:1]])
        harm = f", and then {self.harm}" if self.harm else ""
        what = re.sub(r"0x\w+|\d{9,}", "…", kind + harm)  # the numbers of objects, which differ from run to run
        return f"{self.program.name} | {self.breach.law} | {what}"[:300]


def failures(answer: Answer, beat: Callable[[str], None] = lambda what: None) -> list[Failure]:
    """What an answer does wrong: all programs that fail under the default schedule; if none does, the first that fails
    under another. `beat` is told what is tried."""
    tried = programs(answer.exercise.number)
    expected = {each.name: given(each) for each in tried}

    def first(found: Iterator[Failure | None]) -> list[Failure]:
        return [each for each in [next((each for each in found if each is not None), None)] if each is not None]

    def attempts(how: Callable[..., Failure | None], some: list[Program]) -> Iterator[Failure | None]:
        for each in some:
            beat(each.name)
            yield how(answer, each, expected[each.name], beat)

    simulated = [each for each in tried if not each.alone]
    with answer.at_work():
        found = [each for each in attempts(_by_default, tried) if each is not None]
        found = found or first(attempts(_by_likely_schedules, simulated))
        found = found or first(attempts(_by_chance, simulated))
        return found or first(attempts(_with_real_processes, [each for each in simulated if each.real][:1]))


def given(program: Program) -> Any:
    """What minidl's own functions make of it: a value; or the outcome of a run."""
    return program.run() if program.alone else _run(program, "0")


def _run(program: Program, schedule: str | Schedule) -> Outcome:
    return simulate(program.run, schedule=schedule, **_options(program))


def _options(program: Program) -> dict[str, Any]:
    return {"draws": False, "most_steps": STEPS, "texts": laws.texts, **program.options}


def _by_default(answer: Answer, program: Program, expected: Any, beat: Any) -> Failure | None:
    if not program.alone:
        return _judged(answer, program, _run(program, "0"), expected)
    try:
        got = program.run()
    except Exception as error:
        breach = laws.Breach("no error", answer.raised(error), short(expected), -1)
        return Failure(program, breach, None, error)
    return None if got == expected else Failure(program, laws.Breach("the same", got, expected, -1))


class OneSlowThread(Recorded):
    """One thread runs only when no other can: a slow worker, a slow feeder."""

    def __init__(self, number: int) -> None:
        super().__init__(seed=0, faults=0, horizon=1)
        self.slow = number

    def pick(self, machine: Any, default: Any) -> Any:
        return machine.next_able(self.slow + 1) if default.number == self.slow else default


def _by_likely_schedules(answer: Answer, program: Program, expected: Outcome, beat: Any) -> Failure | None:
    slow = range(1, len(expected.threads)) if program.chance else ()
    likely: list[Any] = [*program.schedules, *(functools.partial(OneSlowThread, number) for number in slow)]
    for each in likely:
        beat(program.name)
        failure = _judged(answer, program, _run(program, each if isinstance(each, str) else each()), expected)
        if failure is not None:
            return _shortened(answer, failure, expected)
    return None


def _by_chance(answer: Answer, program: Program, expected: Outcome, beat: Any) -> Failure | None:
    def judge(outcome: Outcome) -> list[str]:
        beat(program.name)
        failure = _judged(answer, program, outcome, expected)
        return [] if failure is None else [failure.breach.law]

    options = _options(program)
    found = explore_by_chance(program.run, program.chance, faults=program.faults, judge=judge, **options)
    return None if found.counterexample is None else _judged(answer, program, found.counterexample, expected)


def _shortened(answer: Answer, failure: Failure, expected: Outcome) -> Failure:
    """The same, under a schedule with nothing in it that it does not need."""
    assert failure.outcome is not None
    program = failure.program

    def judge(outcome: Outcome) -> list[str]:
        found = _judged(answer, program, outcome, expected)
        return [] if found is None else [found.breach.law]

    outcome, _ = shorten(failure.outcome, judge, _options(program))
    return _judged(answer, program, outcome, expected) or failure


def _with_real_processes(answer: Answer, program: Program, expected: Outcome, beat: Any) -> Failure | None:
    try:
        got = program.run()
    except Exception as error:
        return Failure(
            program, laws.Breach("real processes", answer.raised(error), short(expected.result), -1), None, error
        )
    if got == expected.result:
        return None
    return Failure(program, laws.Breach("real processes", *apart(got, expected.result), -1))


# ---- one run


def _judged(answer: Answer, program: Program, outcome: Outcome, expected: Outcome) -> Failure | None:
    """What is wrong with a run."""
    if isinstance(outcome.error, parts.SlotsBroken):
        return Failure(program, laws.Breach("slots", outcome.error.got, outcome.error.expected, -1), outcome)
    breach = laws.broken(outcome.events) if outcome.error is None or not _slips(answer, outcome) else None
    harm = next(_harm(answer, program, outcome, expected), None)
    if breach is None and harm is None:
        return None
    also = harm.law if breach is not None and harm is not None else ""
    breach = breach or harm
    assert breach is not None
    errors = [outcome.error, *(error for _, error in outcome.errors)]
    own = next((each for each in errors if each is not None and answer.line_of(each)), None)
    return Failure(program, breach, outcome, own if breach.law in ("no error", "ends") else None, also)


SLIPS = (NameError, AttributeError, ImportError, TypeError)  # often a misspelt name, not a mistaken idea


def _slips(answer: Answer, outcome: Outcome) -> bool:
    return isinstance(outcome.error, SLIPS) and bool(answer.line_of(outcome.error))


def _harm(answer: Answer, program: Program, outcome: Outcome, expected: Outcome) -> Iterator[laws.Breach]:
    """What a run does that minidl's does not."""
    faults = [move.what for move in outcome.schedule.moves if move.what is not Fault.RUN]
    died = [(name, error) for name, error in outcome.errors if not _may_end(error, faults)]
    usual = [type(error) for _, error in expected.errors]
    wanted = short(expected.result) if expected.error is None else f"raised {type(expected.error).__name__}"
    for name, error in died if [type(error) for _, error in died] != usual else ():
        yield laws.Breach("no error", f"{_role(name)} {answer.raised(error)}", wanted, -1)
    if outcome.deadlock or outcome.endless:
        what = "every thread waits, and none can ever go on" if outcome.deadlock else "it goes on for ever"
        yield laws.Breach("ends", what, wanted, -1)
        return
    if outcome.error is not None and not faults and type(outcome.error) is not type(expected.error):
        yield laws.Breach("no error", answer.raised(outcome.error), wanted, -1)
    killed_main = Fault.KILL in faults and outcome.exitcodes[outcome.threads[0][0]] == -9
    if outcome.error is None and not killed_main and outcome.exitcode == 0:
        if program.accepts is not None and (wrong := program.accepts(outcome, expected)):
            yield laws.Breach("the same", wrong, program.wanted, -1)
        elif program.accepts is None and outcome.result != expected.result:
            yield laws.Breach("the same", *apart(outcome.result, expected.result), -1)
    if Fault.INTERRUPT not in faults or len(faults) < 2:  # a second Ctrl-C interrupts the clean-up after the first
        left = _without_garbage(outcome)
        if left and not killed_main:
            yield laws.Breach(
                "leaves nothing", f"still there when the program had ended: {left}", "nothing is left", -1
            )
    yield from _ends(outcome, expected, faults)
    if len(outcome.swallowed) > len(expected.swallowed) and not faults:
        what = f"raised where Python can only print it: {outcome.swallowed[0]}"
        yield laws.Breach("no error", what, "nothing is raised", -1)


def _may_end(error: BaseException, faults: Sequence[Fault]) -> bool:
    """Ctrl-C ends workers wherever they are, and they have nobody to tell when main is dead."""
    return (isinstance(error, KeyboardInterrupt) and Fault.INTERRUPT in faults) or (
        isinstance(error, OSError) and Fault.KILL in faults
    )


def _ends(outcome: Outcome, expected: Outcome, faults: Sequence[Fault]) -> Iterator[laws.Breach]:
    """By itself, and in time."""
    first = outcome.threads[0][0]
    for at, worker in _forced(outcome).items() if not _forced(expected) and not faults else ():
        after = (outcome.events[at][0] - outcome.events[0][0]) / 1e9
        what = f"worker {worker} was ended by force, {after:.1f} s after the beginning"
        yield laws.Breach("ends by itself", what, "it ends by itself", at)
    codes = {pid: code for pid, code in outcome.exitcodes.items() if code and pid != first}
    killed = {pid for pid, code in codes.items() if code == -9 and Fault.KILL in faults}
    by_force = {pid for pid in codes if codes[pid] != expected.exitcodes.get(pid)} - killed
    if by_force and set(faults) <= {Fault.KILL}:
        pid = min(by_force)
        what = f"worker {pid - first - 1} was ended by force" if codes[pid] in (-15, -9) else ""
        what = what or f"worker {pid - first - 1} ended with exit code {codes[pid]}"
        if Fault.KILL in faults and outcome.exitcodes[first]:
            what = f"main was dead, but worker {pid - first - 1} did not leave its loop"
        yield laws.Breach("ends by itself", what, "it ends by itself", -1)
    if faults and set(faults) <= {Fault.KILL, Fault.INTERRUPT} and None not in outcome.exitcodes.values():
        took = max(outcome.ended.values()) - outcome.last_fault_at
        if took > LATE + expected.lasted:
            yield laws.Breach("in time", f"it took {took:.1f} s until all had ended", "within a second", -1)
    elif not faults and first in outcome.ended and outcome.lasted > expected.lasted + LATE:
        yield laws.Breach("in time", f"it took {outcome.lasted:.1f} s", f"{expected.lasted:.1f} s", -1)


def _forced(outcome: Outcome) -> dict[int, int]:
    """Where main ends a worker by force, and which."""
    return {at: event[5] for at, event in enumerate(outcome.events) if event[2] == Kind.WORKER_TERMINATED}


def _role(name: str) -> str:
    """Of a thread. Main itself is not among those that are named."""
    return name.removeprefix("minidl ").replace("MainThread", "a worker")


def _without_garbage(outcome: Outcome) -> str:
    """What a run leaves behind, if it leaves it when garbage is collected at its end, too: what only a cycle keeps
    alive is no mistake. contextlib.ExitStack makes one of an exception."""
    if not outcome.left and not outcome.open_pipes:
        return ""

    def program() -> Any:
        result = outcome.program()
        gc.collect()
        return result

    gc.collect()  # what earlier runs have left is none of this one's business
    again = simulate(program, schedule=outcome.token, **outcome.options)
    return ", ".join([*map(_role, again.left), *[f"{again.open_pipes} ends of pipes"] * bool(again.open_pipes)])


# ---- words


def short(value: Any) -> str:
    """A value in one line."""
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def apart(got: Any, wanted: Any, where: str = "") -> tuple[str, str]:
    """Where two results differ, and what is there in each."""
    if isinstance(got, dict) and isinstance(wanted, dict):
        name = next((each for each in wanted if each not in got or got[each] != wanted[each]), None)
        if name is not None and name in got:
            return apart(got[name], wanted[name], name)
    if isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted) > 3:
        different = [k for k, (one, other) in enumerate(zip(got, wanted, strict=True)) if one != other]
        if len(different) == 1:
            return apart(got[different[0]], wanted[different[0]], f"{where}[{different[0]}]")
    return (f"{where}: {short(got)}", f"{where}: {short(wanted)}") if where else (short(got), short(wanted))
