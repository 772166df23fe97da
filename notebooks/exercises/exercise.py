"""What an exercise is, and the list of all of them, read from texts/: a teacher edits or translates them there.

texts/07.md       the task, the legend, three hints, and for each known mistake a section with its cause
texts/07.wrong    the known mistakes, each an edit of the reference

Legend
    reference   "minidl.data.fetch:MapFetcher.fetch"     a function of minidl that the learner rewrites
    answer      answers/01_map_fetcher.py                the learner's file
    mistake     "one sample in a list"                   the short name of what is wrong with an answer
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TEXTS = FOLDER / "texts"
# Where the answers are; a teacher can point it at a learner's folder.
ANSWERS = Path(os.environ.get("MINIDL_ANSWERS", FOLDER / "answers"))


@dataclass(frozen=True)
class Exercise:
    """One of the course's exercises."""

    number: int
    title: str
    name: str  # of its file: "map_fetcher"
    notebook: str  # "02-datasets-samplers-fetchers.ipynb"
    references: tuple[str, ...]
    forbidden: frozenset[str]  # names that an answer must not use: the reference under other names
    task: str  # paragraphs: what to write, and how the loader uses it
    legend: dict[str, str]  # a name the function can use -> what it is, with an example value
    hints: tuple[str, ...]  # three, from a nudge to nearly the answer
    causes: dict[str, str]  # mistake -> why it is one, and what to think about

    @property
    def id(self) -> str:
        return f"{self.number:02}"

    @property
    def file(self) -> str:
        return f"{self.id}_{self.name}.py"


def sections(text: str, mark: str) -> dict[str, str]:
    """{heading: what is below it} for the headings of one level, which begin with `mark`."""
    parts = re.split(rf"^{mark} (.+)\n", text, flags=re.MULTILINE)
    return {heading.strip(): body.strip() for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


def _read(path: Path) -> Exercise:
    text = path.read_text(encoding="utf-8")
    title, about = next(iter(sections(text, "#").items()))
    number, _, title = title.partition(". ")
    head = dict(re.findall(r"^([a-z ]+): (.+)$", about.partition("\n## ")[0], flags=re.MULTILINE))
    parts = sections(text, "##")
    return Exercise(
        int(number),
        title,
        head["name"],
        head["notebook"],
        tuple(head.get("functions", "").split()),
        frozenset(head.get("not to be used", "").split()),
        parts["Task"],
        {name: _in_one_line(what) for name, what in re.findall(ITEM, parts.get("Legend", ""), flags=re.DOTALL)},
        tuple(_in_one_line(each) for each in re.split(r"^\d\. ", parts["Hints"], flags=re.MULTILINE)[1:]),
        {mistake: _in_one_line(cause) for mistake, cause in sections(parts["Mistakes"], "###").items()},
    )


ITEM = r"- `(.+?)`: (.+?)(?=\n- `|\Z)"  # of a legend


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


@functools.cache
def exercises() -> dict[str, Exercise]:
    """All of them, by id ("07"), in order."""
    return {path.stem: _read(path) for path in sorted(TEXTS.glob("[0-9][0-9].md"))}


def exercise(name: str | int) -> Exercise:
    """The exercise with this number: "07", "7" or 7. ValueError: there is none."""
    number = str(name).zfill(2)
    if number not in exercises():
        raise ValueError(f"there is no exercise {name!r}: they are {', '.join(exercises())}")
    return exercises()[number]


def find(reference: str) -> tuple[Any, str, Any]:
    """The owner of a reference (a class or a module), its name there, and the function itself."""
    module_name, _, path = reference.partition(":")
    owner = importlib.import_module(module_name)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    return owner, name, inspect.getattr_static(owner, name)


# ---- known mistakes


@dataclass(frozen=True)
class Edit:
    """A known mistake, as an edit of the reference.

    # no_buffer: no buffer                  its own name, and the mistake's
    -if task_id == self._rcvd_idx:          these lines, of which there must be exactly one place,
    +if True:                               become these
    def _take                               and this becomes the whole body of that function
        return None
    """

    name: str
    mistake: str
    bodies: dict[str, str]
    changes: tuple[tuple[str, str], ...]


@functools.cache
def known(number: str) -> dict[str, Edit]:
    """The known mistakes of an exercise, by name."""
    text = (TEXTS / f"{number}.wrong").read_text(encoding="utf-8")
    found = {}
    for heading, edits in sections(text, "#").items():
        name, _, mistake = heading.partition(": ")
        bodies = dict(re.findall(r"^def (\w+)\n((?:(?: {4}.*)?\n)+)", f"{edits}\n", flags=re.MULTILINE))
        changes = re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)+)", f"{edits}\n", flags=re.MULTILINE)
        found[name] = Edit(name, mistake, bodies, tuple((_marked(old), _marked(new)) for old, new in changes))
    return found


def _marked(lines: str) -> str:
    """These lines without their marks."""
    return "\n".join(line[1:] for line in lines.splitlines())
