"""Writes the part of docs/simulation.md about mutants, and its pictures: `make mutants`, or

python -m docs.make.mutants
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import matplotlib.pyplot as plt

import tracing
from docs.make.markers import between_markers
from minidl.world.simulated import Exploration
from tests.minidl.simulated.mutants import Edit, Mutant, at_work
from tests.minidl.simulated.slot_mutants import ALL_MUTANTS

DOCS = Path(__file__).parents[1]
PICTURES = Path("pictures/mutants")
DRAWN = 0.0008  # seconds of a run that are drawn: what follows is waiting
SHOWN = [mutant for mutant in ALL_MUTANTS if mutant.seen_in != Mutant.seen_in]  # those that a real loader had


def main() -> None:
    page = DOCS / "simulation.md"
    before = page.read_text(encoding="utf-8")
    between_markers(before, "", "mutants")  # fails now rather than after the work
    (DOCS / PICTURES).mkdir(parents=True, exist_ok=True)
    sections = []
    for mutant in SHOWN:
        print(f"exploring: {mutant.name}", file=sys.stderr, flush=True)
        found = mutant.explored()
        draw(mutant, found, DOCS / picture(mutant))
        sections.append(section(mutant, found))
    text = "\n\n".join(sections)
    page.write_text(between_markers(before, text, "mutants"), encoding="utf-8")


def picture(mutant: Mutant) -> Path:
    words = "".join(letter if letter.isalnum() else " " for letter in mutant.name).split()
    return PICTURES / f"{'-'.join(words)}.png"


def draw(mutant: Mutant, found: Exploration, path: Path) -> None:
    """Draw the timeline of the counterexample, without the waiting at its end."""
    assert found.counterexample is not None, mutant.name
    with at_work(mutant):
        trace = tracing.load(found.counterexample)
    figure = tracing.timeline(trace, end=min(DRAWN, trace.duration / 1e9), follow=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def section(mutant: Mutant, found: Exploration) -> str:
    assert found.counterexample is not None
    parts = [f"### {mutant.name[0].upper()}{mutant.name[1:]}", mutant.lesson]
    if mutant.edits:
        parts.append("```diff\n" + "\n".join(change(edit) for edit in mutant.edits) + "\n```")
    broken = next(each for each in found.broken if mutant.broken in each)  # not a mere consequence of it
    count = f"{found.schedules} schedule{'s' * (found.schedules > 1)}"
    shown = f"Seen in {mutant.seen_in}; found after {count}, by `{found.counterexample.token}`: *{shorten(broken)}*."
    return "\n\n".join([*parts, shown, f"![The run that shows it]({picture(mutant).as_posix()})"])


def change(edit: Edit) -> str:
    """An edit as a diff."""
    old, new = ([line.strip() for line in text.splitlines()] for text in (edit.old, edit.new))
    lines = [line for line in difflib.ndiff(old, new) if not line.startswith("?")]
    return "\n".join([f"# {edit.name}", *lines])


def shorten(text: str, limit: int = 160) -> str:
    """Of an exception in a worker: that it is one, and what it says."""
    if len(lines := text.strip(" '\"\n").splitlines()) > 1:
        text = f"{lines[0]} … {lines[-1]}"
    return text if len(text) <= limit else f"{text[:limit]}…"


if __name__ == "__main__":
    main()
