"""The learner's files: where they are, what they define, and what can be wrong before one is tried.

answers/01_map_fetcher.py        a skeleton, made when it is first asked for; git ignores the folder
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import sys
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notebooks.exercises.exercise import ANSWERS, Exercise, find
from notebooks.exercises.patching import replaced
from notebooks.exercises.verdict import Finding


def provide(exercise: Exercise, folder: Path | None = None) -> Path:
    """The learner's file; if there is none, a skeleton."""
    path = (ANSWERS if folder is None else folder) / exercise.file
    if not path.exists():
        from notebooks.exercises.skeleton import generate  # imports torch

        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(generate(exercise), encoding="utf-8")
    return path


class NotAttempted(Exception):
    """It still contains `raise NotImplementedError`."""


class Refused(Exception):
    """The answer cannot be tried."""

    def __init__(self, mistake: str, path: Path, got: str, cause: str, expected: str = "a Python file") -> None:
        super().__init__(cause)
        self.finding = Finding(mistake, f"reading {path.name}", got, expected, cause)


@dataclass
class Answer:
    """A learner's file that loads: its functions can take the place of minidl's."""

    exercise: Exercise
    path: Path
    functions: dict[str, Any] = field(default_factory=dict)  # reference -> the learner's
    helpers: list[tuple[type, str, Any]] = field(default_factory=list)  # what else its classes define, for minidl's
    names: dict[str, Any] = field(default_factory=dict)  # everything that the file defines

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """minidl with the learner's functions."""
        with contextlib.ExitStack() as stack:
            for owner, name, helper in self.helpers:
                setattr(owner, name, helper)
                stack.callback(delattr, owner, name)
            for reference, function in self.functions.items():
                owner, _, old = find(reference)
                stack.enter_context(replaced(old, function, owner))
            yield

    def line_of(self, error: BaseException) -> int:
        """The line of the learner's file that an exception came from, here or in a worker; 0: none."""
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno or 0 for frame in frames if frame.filename == str(self.path)]
        said = re.findall(rf'File "{re.escape(str(self.path))}", line (\d+)', str(error))  # with a worker's error
        return int((lines or said or [0])[-1])

    def is_origin(self, error: BaseException) -> bool:
        """Whether an exception was raised by a line of the learner's file, not by something that it has called."""
        frames = traceback.extract_tb(error.__traceback__)
        return bool(frames) and frames[-1].filename == str(self.path)

    def raised(self, error: BaseException) -> str:
        """An exception in one line, with the line of the learner's file that it came from."""
        last = str(error).strip().splitlines()[-1:] or [""]  # of a worker's error, which has its whole traceback
        words = last[0] if "Traceback" in str(error) else f"{type(error).__name__}: {' '.join(str(error).split())}"
        line = self.line_of(error)
        return f"raised {words.removesuffix(': ')}" + (f" (line {line} of {self.path.name})" if line else "")


def read(exercise: Exercise, path: Path) -> Answer:
    """Execute the file and take its functions. Raises NotAttempted, or Refused with the reason."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused("cannot be read", path, str(error), "Save it as text, in UTF-8.") from None
    try:
        tree = ast.parse(source, str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        what = f"line {error.lineno}: {error.msg}" + (f"   {line}" if line else "")
        raise Refused("syntax error", path, what, "Python cannot parse the file. Was it saved half way?") from None
    except ValueError as error:  # null bytes
        raise Refused("syntax error", path, str(error), "Python cannot parse the file.") from None
    _still_to_write(exercise, tree, source)
    _without_inheritance(exercise, tree)
    _no_reference(exercise, tree, path)
    answer = Answer(exercise, path)
    module = types.ModuleType(f"answer_{exercise.id}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses and pickle look for it
    try:
        exec(compile(tree, str(path), "exec"), vars(module))
    except Exception as error:
        what = f"line {answer.line_of(error) or '?'}: {type(error).__name__}: {error}"
        raise Refused("does not load", path, what, "Importing the file raises.") from None
    answer.names = vars(module)
    answer.functions = {each: _function(module, each, path) for each in exercise.references}
    answer.helpers = list(_helpers(module, exercise, path))
    return answer


def _still_to_write(exercise: Exercise, tree: ast.Module, source: str) -> None:
    """NotAttempted if a function, or a file without functions, is still as in the skeleton."""
    if not exercise.references:
        from notebooks.exercises.skeleton import generate

        if source == generate(exercise):
            raise NotAttempted("all of it")
    names = {reference.rpartition(":")[2].rpartition(".")[2] for reference in exercise.references}
    empty = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            body = [
                each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
            if all(isinstance(each, ast.Raise) and "NotImplementedError" in ast.unparse(each) for each in body):
                empty.append(node.name)
    if empty:
        raise NotAttempted(", ".join(empty))


def _without_inheritance(exercise: Exercise, tree: ast.Module) -> None:
    """A class may inherit from minidl's of that name. It needn't: its methods are put into that one."""
    owners = {reference.rpartition(":")[2].partition(".")[0] for reference in exercise.references}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in owners:
            node.bases = [base for base in node.bases if ast.unparse(base).rpartition(".")[2] != node.name]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for statement in [each for each in tree.body if isinstance(each, ast.ImportFrom)]:
        statement.names = [each for each in statement.names if each.name not in owners - used]
        if not statement.names:
            tree.body.remove(statement)


def _no_reference(exercise: Exercise, tree: ast.Module, path: Path) -> None:
    """Refused if the answer imports what it should implement: most likely by an editor that completes names."""
    own = {reference.rpartition(":")[2].rpartition(".")[2] for reference in exercise.references}
    owners = {reference.rpartition(":")[2].partition(".")[0] for reference in exercise.references}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            taken = [each.name for each in node.names if each.name in own | owners | exercise.forbidden]
        else:
            taken = [node.attr] if isinstance(node, ast.Attribute) and node.attr in exercise.forbidden else []
        if taken:
            what = f"line {node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]
            cause = f"`{taken[0]}` is, or leads to, what you are asked to write. The exercise can be solved without it."
            raise Refused("imports the reference", path, what, cause, "an answer of your own")


def _function(module: types.ModuleType, reference: str, path: Path) -> Any:
    """The learner's function, with the reference's parameters."""
    _, name, original = find(reference)
    there: Any = module
    dotted = reference.rpartition(":")[2]
    for part in dotted.split("."):
        there = inspect.getattr_static(there, part, None)
    if not inspect.isfunction(there) and (callable(there) or hasattr(there, "__get__")):
        return there  # what a decorator has made, functools.singledispatchmethod, say: it shows when it is called
    if not inspect.isfunction(there):
        cause = f"Keep `{name}` where the skeleton has it."
        raise Refused("function is missing", path, f"no function {dotted}", cause, f"def {name}")
    wanted, has = (list(inspect.signature(each).parameters) for each in (original, there))
    if wanted != has:
        cause = "The loader calls the function with the skeleton's parameters: keep their names and their order."
        expected = f"def {name}({', '.join(wanted)})"
        raise Refused("wrong signature", path, f"def {name}({', '.join(has)})", cause, expected)
    if inspect.isgeneratorfunction(there) and not inspect.isgeneratorfunction(original) and name != "__iter__":
        cause = "A function with a `yield` in it does not run when it is called."
        raise Refused("is a generator", path, f"{name} has a yield", cause, "a function")
    return there


def _helpers(module: types.ModuleType, exercise: Exercise, path: Path) -> Iterator[tuple[type, str, Any]]:
    """Methods and attributes that the learner has added to a class of the skeleton. Refused if minidl's class has one
    of that name: it would be replaced for all that use it."""
    asked = {reference.rpartition(":")[2] for reference in exercise.references}
    for owner in {find(reference)[0] for reference in exercise.references}:
        for name, helper in vars(getattr(module, owner.__name__)).items() if isinstance(owner, type) else ():
            full = f"{owner.__name__}.{name}"
            if full not in asked and name in ("__init__", "__new__"):
                cause = (
                    f"Your methods are put into minidl's {owner.__name__}, which makes its fields itself. Make a "
                    "field of your own where it is first needed, or give the class an attribute."
                )
                raise Refused("makes fields", path, full, cause, "only methods of your own")
            if full in asked or name.startswith("__"):
                continue
            if hasattr(owner, name):
                cause = (
                    f"minidl's {owner.__name__} has a `{name}` of its own, which the loader needs: choose another name."
                )
                raise Refused("name is taken", path, full, cause, "a name of your own")
            yield owner, name, helper
