"""The likely cause: of the known mistakes, the one that fails as the answer does.

    python -m notebooks.exercises.diagnose [NN ...]      write how each known mistake fails: texts/fails.json

The table is generated: a new mistake is an edit in texts/NN.wrong and a section in texts/NN.md. An answer is compared
by all programs that fail, and how: a law, and what was the case instead.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from notebooks.exercises.exercise import TEXTS, Exercise, exercise, exercises, known

TABLE = TEXTS / "fails.json"
ALIKE = 0.5  # of what fails, at least
ENDLESS = "never returns"  # a mistake that the runner finds, with its line


def nearest(which: Exercise, keys: list[str], alike: float = ALIKE) -> str:
    """The mistake whose known answers fail most like this one; "": none is as much `alike`. `keys`: its failures, in
    order."""
    found = {name: likeness(keys, its) for name, its in table().get(which.id, {}).items()}
    best = max(found, key=lambda name: found[name], default="")
    return known(which.id)[best].mistake if best and found[best] >= alike else ""


def likeness(one: list[str], other: list[str]) -> float:
    """From 0 to 1. What fails first counts as much as all that fails."""
    if not one or not other:
        return 0.0
    mine, its = (dict(_split(key) for key in keys) for keys in (one, other))
    every = mine.keys() | its.keys()
    in_all = sum(_alike(mine.get(name), its.get(name)) for name in every) / len(every)
    (first, how), (its_first, its_how) = _split(one[0]), _split(other[0])
    return (in_all + (_alike(how, its_how) if first == its_first else 0.0)) / 2


def _split(key: str) -> tuple[str, tuple[str, str]]:
    """(program, (law, what was the case))."""
    program, law, what = key.split(" | ", 2)
    return program, (law, what)


def _alike(one: tuple[str, str] | None, other: tuple[str, str] | None) -> float:
    """1: the same; 0.6: it breaks the same law in another way."""
    return 1.0 if one == other else 0.6 if one and other and one[0] == other[0] else 0.0


@functools.cache
def table() -> dict[str, dict[str, list[str]]]:
    """By exercise and known mistake, the keys of its failures."""
    found: dict[str, dict[str, list[str]]] = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    return found


def fails(which: Exercise, name: str) -> list[str]:
    """How a known mistake fails."""
    from notebooks.exercises import judge
    from notebooks.exercises.answers import read
    from notebooks.exercises.skeleton import edited

    with tempfile.TemporaryDirectory(prefix="mistake-") as folder:
        path = Path(folder, which.file)
        path.write_text(edited(which, known(which.id)[name]), encoding="utf-8")
        return [each.key for each in judge.failures(read(which, path))]


def main(numbers: Iterable[str]) -> None:
    gc.collect()
    gc.freeze()  # as in the processes that answers are tried in
    found = dict(table())
    for each in [exercise(number) for number in numbers] or [each for each in exercises().values() if each.references]:
        found[each.id] = {name: fails(each, name) for name, edit in known(each.id).items() if edit.mistake != ENDLESS}
        print(each.id, *(f"\n  {name} fails nowhere" for name, keys in found[each.id].items() if not keys))
    TABLE.write_text(json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
