"""Which of the generated mutants the simulated world kills: `make score`, or

    python -m tests.minidl.simulated.killing [--only parallel.] [--every 10]

Each mutant runs the programs worth exploring that reach the changed function, in a fork of this process: first each by
the default schedule, its trace checked; then each by random schedules with up to two faults. The first run in which
something does not hold kills it. So does one that never ends.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from minidl.world.simulated import Outcome
from minidl.world.simulated.schedule import Priorities, Random, Schedule
from tests.minidl.simulated import generated_mutants
from tests.minidl.simulated.exploring import end_with_parent
from tests.minidl.simulated.generated_mutants import Generated, generated
from tests.minidl.simulated.worth import Worth
from tests.minidl.simulated.worth_all import PROGRAMS

THRESHOLD = 0.83  # of the mutants are killed; of a tenth of them two standard deviations (1.6 % each) may be missing
LIMIT = 10.0  # seconds of a processor; a run that takes longer makes no progress (the longest take one)
BLOCKED = 600.0  # seconds by the clock for all runs of a mutant: it may wait for something real
SCHEDULES = 100  # random ones, of the programs that reach the function
ENDED = {-signal.SIGPROF: "it never ends"}
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

    def schedules(self) -> Iterator[Schedule]:
        """Random ones, without end; none where the result depends on when what happens."""
        for number in itertools.count() if not self.worth.timed else ():
            yield (Random, Priorities)[number % 2](number, 2, self.expected.steps)


def judged(schedules: int = 9) -> dict[str, Judged]:
    """The programs worth exploring. What one reaches also depends on what goes wrong: so
    many schedules are looked at."""
    torch.set_num_threads(1)  # a fork does not inherit torch's threads, and would wait for them for ever
    found = {}
    for name, worth in PROGRAMS.items():
        reaches: set[tuple[str, int]] = set()

        def note(frame: Any, event: str, argument: Any, reaches: set[tuple[str, int]] = reaches) -> None:
            if event == "call":
                reaches.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

        sys.setprofile(note)
        try:
            each = Judged(worth, worth.run("0"), frozenset())
            for schedule in itertools.islice(each.schedules(), schedules - 1):
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


def begin_run() -> None:
    """SIGPROF comes, which ends a process without a handler, if it takes LIMIT until this is called again."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT, LIMIT)


def kill(mutant: Generated, tried: dict[str, Judged]) -> Verdict:
    """Put it to work and try to kill it."""
    code = generated_mutants.function_of(mutant).__code__
    near = {name: each for name, each in tried.items() if (code.co_filename, code.co_firstlineno) in each.reaches}
    if not near:
        return Verdict("", "", "no program reaches it")
    with generated_mutants.at_work(mutant):
        if by_default := killed_by_default(near):
            return by_default
        for number, (name, each, schedule) in enumerate(itertools.islice(in_turn(near), SCHEDULES)):
            if broken := each.breaks(schedule, checks=number % CHECK_EVERY == 0):
                return Verdict(name, schedule.token, broken)
    return Verdict("", "", "")


def killed_by_default(near: dict[str, Judged]) -> Verdict | None:
    """By the default schedule of a program: the short ones first, and their traces, which take longest, at the end."""
    outcomes = {}
    for name, each in sorted(near.items(), key=lambda item: item[1].expected.steps):
        outcomes[name] = each.run("0")
        if broken := each.worth.broken(outcomes[name], each.expected, checks=False):
            return Verdict(name, "0", broken[0])
    for name, outcome in outcomes.items():
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


def in_a_fork(mutant: Generated, tried: dict[str, Judged], sender: Any) -> None:
    end_with_parent()
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sender.send(kill(mutant, tried))
    except BaseException as error:  # the simulated world itself, or the judge, trips over what the loader did
        where = traceback.extract_tb(error.__traceback__)[-1]
        sender.send(Verdict("?", "?", f"{error!r} in {where.name}"))


def verdicts(mutants: list[Generated], tried: dict[str, Judged], jobs: int) -> Iterator[tuple[Generated, Verdict]]:
    """Each mutant and what became of it, as they end. At most `jobs` at a time, each with its time limit."""
    context = multiprocessing.get_context("fork")
    waiting, running = list(reversed(mutants)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=in_a_fork, args=(mutant, tried, sender), daemon=True)
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
            yield mutant, verdict


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Which generated mutants the simulated world kills: those that live, and then the score.",
        epilog=f"--every 10: four minutes of two cores; all: ten times as long. Exit status 1 below {THRESHOLD:.0%}.",
    )
    parser.add_argument("--only", default="", metavar="NAME", help='those whose name begins so: "parallel."')
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (%(default)s)")
    arguments = parser.parse_args()
    chosen = [each for each in generated() if str(each).startswith(arguments.only)][:: arguments.every]
    if not chosen:
        parser.error(f"no function is called {arguments.only!r}")
    alive = 0
    try:
        for number, (mutant, verdict) in enumerate(verdicts(chosen, judged(), arguments.jobs), 1):
            if not verdict.program:
                alive += 1
                print(f"alive: {mutant}" + f" ({verdict.broken})" * bool(verdict.broken), flush=True)
            if number % 20 == 0:
                print(f"{number} of {len(chosen)}, {alive} alive", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    killed = len(chosen) - alive
    share = killed / len(chosen)
    print(f"{killed:,} of {len(chosen):,} mutants are killed: {share:.1%}; at least {THRESHOLD:.0%} should be")
    return 0 if share >= THRESHOLD else 1


if __name__ == "__main__":
    sys.exit(main())
