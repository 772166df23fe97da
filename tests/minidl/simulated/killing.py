"""Which of the generated mutants the simulated world kills: `make score`, or

    python -m tests.minidl.simulated.killing [--only parallel.] [--every 10] [--keep FILE] [--write docs/simulation.md]

Each mutant runs the programs worth exploring that reach the changed function, in a fork of this process: first each by
the default schedule, its trace checked; then each by random schedules with up to two faults; then four small ones, by
every schedule with a fault. The first run in which something does not hold kills it. So does one that never ends. What
has killed other mutants of the same function goes first.
Those of minidl.checkpoint run trainings that are stopped after every batch instead (worth_stopping.py).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from rich.console import Console

from minidl.world.simulated import Exploration, Outcome, explore
from minidl.world.simulated.schedule import Priorities, Random, Schedule
from tests.benchmarks.table import between_markers
from tests.minidl.simulated import generated_mutants
from tests.minidl.simulated.exploring import end_with_parent
from tests.minidl.simulated.generated_mutants import STOPS, Generated, generated
from tests.minidl.simulated.programs import configurations
from tests.minidl.simulated.survivors import killed_by, reason
from tests.minidl.simulated.worth import Worth
from tests.minidl.simulated.worth_asking import asking
from tests.minidl.simulated.worth_ending import ending
from tests.minidl.simulated.worth_exploring import programs
from tests.minidl.simulated.worth_fitting import fitting
from tests.minidl.simulated.worth_killing import deaths
from tests.minidl.simulated.worth_moving import moving
from tests.minidl.simulated.worth_returning import returning
from tests.minidl.simulated.worth_stopping import stopping

COMMAND = "python -m tests.minidl.simulated.killing"
LIMIT = 10.0  # seconds of a processor; a run that takes longer makes no progress (the longest take one)
BLOCKED = 600.0  # seconds by the clock for all runs of a mutant: it may wait for something real
SMALL = ("keys", "stream pinned", "stream persistent torch", "keys pinned persistent torch")  # every fault is tried
STOPPED = (  # trainings that are stopped, for what of the loader serves to go on
    "stopping: samples that fail, serial",
    "stopping: samples that fail, every second",
    "stopping: shuffled, spawned",
    "stopping: stopped by a break, persistent",
    "stopping: shuffled, persistent",
    "stopping: main draws, too",
    "stopping: drawn at once, persistent",
    "stopping: counting, persistent, twice",
    "stopping: streams that stumble, serial",
)
SCHEDULES = 100  # random ones, of the programs that reach the function
SCHEDULES_OF_STOPS = 20  # which are long
ENDED = {-signal.SIGXCPU: "it never ends"}
MUTANT = "MINIDL_MUTANT"  # what tests.minidl.simulated.mutated reads
FAILED = 1  # pytest's exit status if tests have failed
LIKELY = 4  # runs that are tried first
CHECK_EVERY = 3  # of these; of the runs by the default schedule every one


@dataclass
class Judged:
    """A program, what it does on the loader as it is, and the functions that it reaches."""

    worth: Worth
    expected: Outcome
    reaches: frozenset[tuple[str, int]]  # (file, first line)

    def run(self, schedule: str | Schedule) -> Outcome:
        begin_run()
        return self.worth.run(schedule)

    def breaks(self, schedule: str | Schedule, checks: bool) -> str:
        """The first thing that does not hold; the empty string: all holds."""
        return next(iter(self.worth.broken(self.run(schedule), self.expected, checks)), "")

    def explored(self) -> Exploration:
        """Every schedule with a fault."""

        def judge(outcome: Outcome) -> list[str]:  # of an outcome it says the same whenever it is asked
            begin_run()  # the next
            return self.worth.broken(outcome, self.expected, checks=outcome.steps % CHECK_EVERY == 0)

        return explore(self.worth.program, delays=0, faults=1, judge=judge, **self.worth.options)

    def schedules(self) -> Iterator[Schedule]:
        """Random ones, without end; none where the result depends on when what happens."""
        for number in itertools.count() if not self.worth.timed else ():
            yield (Random, Priorities)[number % 2](number, 2, self.expected.steps)


def judged(stops: bool = False) -> dict[str, Judged]:
    """The programs worth exploring, or those that are stopped. What one reaches also depends on what goes wrong."""
    torch.set_num_threads(1)  # a fork does not inherit torch's threads, and would wait for them for ever
    found = {}
    small = {name: Worth(configurations()[name], options={"draws": False}) for name in SMALL}
    trainings = {**stopping(), **fitting()}
    usual = {**programs(), **moving(), **deaths(), **ending(), **asking(), **returning(), **small}
    usual |= {**fitting(), **{name: trainings[name] for name in STOPPED}}
    for name, worth in (trainings if stops else usual).items():
        reaches: set[tuple[str, int]] = set()

        def note(frame: Any, event: str, argument: Any, reaches: set[tuple[str, int]] = reaches) -> None:
            if event == "call":
                reaches.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

        each = Judged(worth, worth.run("0"), frozenset())
        sys.setprofile(note)
        try:
            for schedule in ("0", *itertools.islice(each.schedules(), 0 if name in trainings else 8)):
                worth.run(schedule)
        finally:
            sys.setprofile(None)
        each.reaches = frozenset(reaches)
        found[name] = each
    return found


class Verdict(NamedTuple):
    """What became of a mutant."""

    program: str  # that kills it; empty: it lives
    schedule: str
    broken: str  # what does not hold

    @property
    def kind(self) -> str:
        return "alive" if not self.program else "default" if self.schedule in ("0", "?") else "other"


def begin_run() -> None:
    """The process ends if it takes longer than LIMIT until this is called again."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + LIMIT), resource.RLIM_INFINITY))


def kill(mutant: Generated, tried: dict[str, Judged], quick: bool, likely: Iterable[tuple[str, str]] = ()) -> Verdict:
    """In a process of its own. `likely` are a program and a schedule each, which are tried first."""
    code = generated_mutants.function_of(mutant).__code__
    near = {name: each for name, each in tried.items() if (code.co_filename, code.co_firstlineno) in each.reaches}
    if not near:
        return Verdict("", "", "no program reaches it")
    generated_mutants.at_work(mutant)
    for name, schedule in likely:
        if name in near and (broken := near[name].breaks(schedule, checks=True)):
            return Verdict(name, schedule, broken)
    stops = mutant.module.startswith(STOPS)
    if by_default := killed_by_default(near, traces=not (quick and stops)):
        return by_default
    schedules = SCHEDULES_OF_STOPS if stops else SCHEDULES
    for number, (name, each, schedule) in enumerate(itertools.islice(in_turn(near), schedules)):
        if broken := each.breaks(schedule, checks=number % CHECK_EVERY == 0):
            return Verdict(name, schedule.token, broken)
    for name, each in near.items() if not quick else ():
        if name in SMALL and (found := each.explored()).counterexample is not None:
            return Verdict(name, found.counterexample.token, found.broken[0])
    return Verdict("", "", "")


def killed_by_default(near: dict[str, Judged], traces: bool) -> Verdict | None:
    """By the default schedule of a program: the short ones first, and their traces, which take longest, at the end."""
    outcomes = {}
    for name, each in sorted(near.items(), key=lambda item: item[1].expected.steps):
        outcomes[name] = each.run("0")
        if broken := each.worth.broken(outcomes[name], each.expected, checks=False):
            return Verdict(name, "0", broken[0])
    for name, outcome in outcomes.items() if traces else ():
        begin_run()
        if broken := near[name].worth.broken(outcome, near[name].expected):
            return Verdict(name, "0", broken[0])
    return None


def in_turn(near: dict[str, Judged]) -> Iterator[tuple[str, Judged, Schedule]]:
    """A random schedule of each program, and again, without end."""
    drawn = [(name, each, each.schedules()) for name, each in near.items() if not each.worth.timed]
    while drawn:
        for name, each, schedules in drawn:
            yield name, each, next(schedules)


def in_a_fork(
    mutant: Generated, tried: dict[str, Judged], quick: bool, likely: Iterable[tuple[str, str]], sender: Any
) -> None:
    end_with_parent()
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sender.send(kill(mutant, tried, quick, likely))
    except BaseException as error:  # the simulated world itself, or the judge, trips over what the loader did
        where = traceback.extract_tb(error.__traceback__)[-1]
        sender.send(Verdict("?", "?", f"{error!r} in {where.name}"))


def verdicts(
    mutants: list[Generated],
    tried: dict[str, Judged],
    jobs: int,
    quick: bool = False,
    earlier: Mapping[str, Verdict] = MappingProxyType({}),  # by short()
) -> Iterator[tuple[Generated, Verdict]]:
    """Each mutant and what became of it, as they end. At most so many jobs at a time, each with its time limit."""
    context = multiprocessing.get_context("fork")
    waiting, running = list(reversed(mutants)), {}
    killers: dict[tuple[str, str], dict[tuple[str, str], None]] = {}  # of a function's mutants, the last one last
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            receiver, sender = context.Pipe(duplex=False)
            likely = list(killers.setdefault((mutant.module, mutant.name), {}))[: -LIKELY - 1 : -1]
            if killed := earlier.get(short(mutant)):
                likely.insert(0, (killed.program, killed.schedule))
            process = context.Process(target=in_a_fork, args=(mutant, tried, quick, likely, sender), daemon=True)
            process.start()
            sender.close()
            running[receiver] = mutant, process, time.monotonic() + BLOCKED
        first = min(deadline for _, _, deadline in running.values())
        ready = multiprocessing.connection.wait(list(running), max(0.0, first - time.monotonic()))
        for receiver in list(running):
            mutant, process, deadline = running[receiver]
            if receiver not in ready and time.monotonic() < deadline:
                continue
            verdict = Verdict("?", "?", "it never ends")
            if receiver in ready:
                try:
                    verdict = receiver.recv()
                except EOFError:
                    process.join()
                    verdict = Verdict("?", "?", ENDED.get(process.exitcode, "it ends the process"))
            else:
                os.kill(process.pid, signal.SIGKILL)
            process.join()
            del running[receiver]
            receiver.close()
            if verdict.program in tried:
                of_function, killer = killers[mutant.module, mutant.name], (verdict.program, verdict.schedule)
                of_function.pop(killer, None)
                of_function[killer] = None
            yield mutant, verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Which generated mutants the simulated world kills.")
    parser.add_argument(
        "--only",
        default="",
        metavar="NAME",
        help='those whose name begins so: "parallel." (all but "checkpoint.", which takes longer)',
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one in so many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="beginning with this one (%(default)s)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="without what takes longest: every fault of the small programs, the traces of trainings that are stopped",
    )
    parser.add_argument("--unknown", action="store_true", help="those with a reason or a test count as alive, untried")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (%(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write each verdict there, and skip those it has")
    parser.add_argument("--earlier", type=Path, metavar="FILE", help="try first what killed them then")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the score and the survivors into this page")
    parser.add_argument("--tests", action="store_true", help="instead: run the tests that survivors.py names")
    arguments = parser.parse_args()
    chosen = [each for each in generated() if is_chosen(each, arguments.only)]
    sample = chosen[arguments.first :: arguments.every]
    chosen = [each for each in sample if not each.alike]
    if not chosen:
        parser.error(f"no function is called {arguments.only!r}")
    if arguments.tests:
        return by_tests(chosen)
    found = kept(arguments.keep)
    if arguments.unknown:
        found |= {str(each): Verdict("", "", "") for each in chosen if reason(short(each)) and str(each) not in found}
    try:
        judge(chosen, found, arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    text = score(chosen, found, len(sample) - len(chosen))
    if arguments.write:
        page = arguments.write.read_text(encoding="utf-8")
        arguments.write.write_text(between_markers(page, text, f"score {arguments.only}".strip()), encoding="utf-8")
    else:
        print(text)
    return 0


def is_chosen(mutant: Generated, only: str) -> bool:
    if not only:
        return not mutant.module.startswith(STOPS)
    return f"{mutant.module}.{mutant.name}".startswith(only)


def by_tests(chosen: list[Generated]) -> int:
    """Run each test that is said to kill a mutant with that mutant at work; it must fail."""
    lives = 0
    for mutant in chosen:
        if test := killed_by(short(mutant)):
            command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.minidl.simulated.mutated", test]
            environment = {**os.environ, MUTANT: str(mutant)}
            ended = subprocess.run(command, env=environment, capture_output=True, timeout=BLOCKED, check=False)
            killed = ended.returncode == FAILED
            lives += not killed
            print(f"{mutant}: {'killed' if killed else 'NOT killed'} by {test}")
    return 1 if lives else 0


def short(mutant: Generated) -> str:
    """Without the line: as survivors.py describes it."""
    return f"{mutant.module}.{mutant.name}: {mutant.words}"


def without_line(name: str) -> str:
    """The same of a mutant's str()."""
    return re.sub(r":\d+: ", ": ", name, count=1)


def kept(file: Path | None) -> dict[str, Verdict]:
    """The verdicts of an earlier run; one that was cut short leaves half a line."""
    lines = file.read_text(encoding="utf-8").splitlines() if file and file.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("]")]
    return {name: Verdict(*verdict) for name, *verdict in rows}


def judge(chosen: list[Generated], found: dict[str, Verdict], arguments: argparse.Namespace) -> None:
    """Add a verdict on each of those that have none."""
    console, begin, alive = Console(stderr=True, width=120), time.monotonic(), 0
    missing = [each for each in chosen if str(each) not in found]
    missing.sort(key=lambda each: bool(reason(short(each))))  # which live: they take longest
    earlier = {without_line(name): each for name, each in kept(arguments.earlier).items()}
    tried = judged(stops=chosen[0].module.startswith(STOPS)) if missing else {}
    with contextlib.ExitStack() as stack:
        keep = stack.enter_context(arguments.keep.open("a", encoding="utf-8")) if arguments.keep else None
        judgements = verdicts(missing, tried, arguments.jobs, arguments.quick, earlier)
        for number, (mutant, verdict) in enumerate(judgements, 1):
            found[str(mutant)] = verdict
            alive += not verdict.program
            if keep:
                print(json.dumps([str(mutant), *verdict]), file=keep, flush=True)
            if number % 20 == 0 or number == len(missing):
                spent = time.monotonic() - begin
                console.print(f"{number} of {len(missing)}, {alive} alive, {spent:.0f} s", highlight=False)


def score(chosen: list[Generated], found: dict[str, Verdict], alike: int) -> str:
    """For docs/simulation.md: how many of each module's mutants are killed, and which are not, by reason."""
    lines = [
        "| module | mutants | by the default schedule | by another | killed | a test does | a reason | neither |",
        "|---|" + "---:|" * 7,
    ]
    total: Counter[str] = Counter()
    why: dict[str, list[str]] = {}
    for module in generated_mutants.MODULES:
        of_module = [(each, found[str(each)]) for each in chosen if each.module == module]
        if counts := Counter(fate(each, verdict) for each, verdict in of_module):
            total += counts
            lines.append(row(f"`{module}`", counts))
        for each, verdict in of_module:
            if not verdict.program:
                why.setdefault(reason(short(each)) or verdict.broken or "not looked into", []).append(str(each))
    lines += [row("all", total), "", f"Not counted: {alike} that nobody can tell from the loader.", ""]
    lines += ["<details><summary>What the simulated world does not kill, and why</summary>", ""]
    for text, mutants in why.items():
        lines += [f"- {text}", *(f"  - {each}" for each in mutants)]
    return "\n".join([*lines, "", "</details>"])


FATES = ("default", "other", "test", "reason", "alive")


def fate(mutant: Generated, verdict: Verdict) -> str:
    if verdict.kind != "alive":
        return verdict.kind
    return "test" if killed_by(short(mutant)) else "reason" if reason(short(mutant)) else "alive"


def row(name: str, counts: Counter[str]) -> str:
    default, other, *left = (counts[each] for each in FATES)
    columns = [counts.total(), default, other, f"{(default + other) / counts.total():.1%}", *left]
    return f"| {name} | {' | '.join(map(str, columns))} |"


if __name__ == "__main__":
    sys.exit(main())
