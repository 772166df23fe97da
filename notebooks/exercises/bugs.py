"""Exercise 15's traces: loaders with bugs that real loaders have had, run in the simulated world.

    python -m notebooks.exercises.bugs [FOLDER]      write them: a.trace, a.png, ...; the same every time

The runs are made here, not kept in the repository: each is the one that the exploration finds for its bug.

Legend
    letter   "a"                             of a trace
    name     "the round-robin is not reset"  of a bug: see tests/minidl/simulated/mutants.py
    reason   "there is one epoch only ..."   what in a trace contradicts a name; "" if nothing does
"""

from __future__ import annotations

import argparse
import functools
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minidl.world.simulated import Outcome, simulate
from notebooks.exercises.answers import ANSWERS

if TYPE_CHECKING:
    from tests.minidl.simulated.mutants import Mutant

FOLDER = "15_name_the_bug"  # beside the answer
COMMAND = "python -m notebooks.exercises.bugs"
STEPS = 400  # after which a run that would go on for ever is cut off
SHOWN = 0.0008  # seconds of a run that are drawn: the rest is waiting

# The key; then bugs that are in none of the traces.
TRACES = {
    "a": "the round-robin is not reset",
    "b": "nobody looks whether the worker is alive",
    "c": "a new task is sent on receipt instead of on yield",
    "d": "the final message is lost, and nothing stands behind the join",
    "e": "a worker is marked as finished twice",
    "f": "the workers are stopped before the pin thread",
    "g": "any message is taken for the acknowledgement of a new epoch",
    "h": "the iterator is dropped half way and the workers are never told",
}
OTHERS = (
    "process exit joins a feeder that is blocked",
    "the done event has a lock",
    "the error after a death is forgotten",
    "without order, nobody counts what a worker has",
)
NAMES = sorted([*TRACES.values(), *OTHERS])


def mutant(name: str) -> Mutant:
    from tests.minidl.simulated.mutants import MUTANTS

    return next(each for each in MUTANTS if each.name == name)


@functools.cache
def outcome(letter: str) -> Outcome:
    """The run that shows the bug."""
    from tests.minidl.simulated.mutants import at_work

    bug = mutant(TRACES[letter])
    found = bug.explored().counterexample
    assert found is not None, bug.name
    with at_work(bug):
        return simulate(
            bug.program, schedule=found.token, draws=False, texts=lambda _, text: text, most_steps=STEPS, **bug.options
        )


def write(letter: str, folder: Path) -> None:
    """Its trace, folder/a.trace, and its timeline, folder/a.png."""
    import tracing
    from tests.minidl.simulated.mutants import at_work
    from tracing.recording import simulated_run as simulated

    run, path = outcome(letter), folder / f"{letter}.trace"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    with at_work(mutant(TRACES[letter])):  # the run is repeated
        simulated.write(run, path)
    picture(tracing.load(path)).savefig(folder / f"{letter}.png", dpi=110)


def picture(trace: Any) -> Any:
    """Its timeline, without the long wait of a run that hangs."""
    import tracing

    return tracing.timeline(trace, end=min(SHOWN, trace.duration / 1e9), follow=False)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the traces of exercise 15, and their timelines.")
    parser.add_argument("folder", nargs="?", type=Path, default=ANSWERS / FOLDER, help="default: beside the answers")
    folder = parser.parse_args(arguments).folder
    for letter in TRACES:
        write(letter, folder)
        print(folder / f"{letter}.trace", folder / f"{letter}.png")
    print("\nThe names:\n  " + "\n  ".join(NAMES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
