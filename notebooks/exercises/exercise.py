"""What an exercise is, what its grader returns, and the list of all exercises.

Legend
    reference   "minidl.data.fetch:MapFetcher.fetch"     a function of minidl that the learner rewrites
    answer      answers/01_map_fetcher.py                the learner's file
    mistake     "one list"                               what a grader recognises in a wrong answer
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from notebooks.exercises.answers import Answer
    from notebooks.exercises.protocol import Broken

FOLDER = Path(__file__).parent
SKELETONS = FOLDER / "skeletons"


@dataclass
class Finding:
    """The first thing that is wrong with an answer, in words."""

    mistake: str  # which one: its short name in the exercise's table, or a general one ("syntax error")
    call: str  # what was tried: "fetch([3, 1])"
    got: str  # what came back or was raised
    expected: str  # what should have
    cause: str  # the likely reason, and what to think about
    broken: Broken | None = None  # a run that breaks a rule of the protocol; its timeline is drawn
    seen: list[str] = field(default_factory=list)  # more lines, such as what waits for what


@dataclass(frozen=True)
class Exercise:
    """One of the course's exercises."""

    number: int
    name: str  # of its file: "map_fetcher"
    title: str
    references: tuple[str, ...]
    task: str  # paragraphs: what to write, and how the loader uses it
    legend: dict[str, str]  # a name the function can use -> what it is, with an example value
    hints: tuple[str, str, str]  # from a nudge to nearly the answer
    grade: Callable[[Answer], Finding | None]
    notebook: str  # "02-datasets-samplers-fetchers.ipynb"
    protocol: bool = False  # graded in the simulated world
    forbidden: tuple[str, ...] = ()  # names that an answer must not use: the reference under other names
    text: Callable[[bool], str] | None = None  # without references: the file below its docstring; True: solved

    @property
    def id(self) -> str:
        return f"{self.number:02}"

    @property
    def file(self) -> str:
        return f"{self.id}_{self.name}.py"

    @property
    def skeleton(self) -> Path:
        return SKELETONS / self.file


def find(reference: str) -> tuple[Any, str, Any]:
    """The owner of a reference (a class or a module), its name there, and the function itself."""
    module_name, _, path = reference.partition(":")
    owner = importlib.import_module(module_name)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    return owner, name, inspect.getattr_static(owner, name)


@functools.cache
def exercises() -> dict[str, Exercise]:
    """All of them, by id ("07"), in order."""
    from notebooks.exercises import catalogue

    names = sorted(each.name for each in pkgutil.iter_modules(catalogue.__path__) if each.name.startswith("e"))
    found = [importlib.import_module(f"{catalogue.__name__}.{name}").EXERCISE for name in names]
    return {each.id: each for each in sorted(found, key=lambda each: each.number)}


def exercise(name: str | int) -> Exercise:
    """The exercise with this number: "07", "7" or 7. ValueError: there is none."""
    number = str(name).zfill(2)
    if number not in exercises():
        raise ValueError(f"there is no exercise {name!r}: they are {', '.join(exercises())}")
    return exercises()[number]
