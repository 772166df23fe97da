"""The learner's files: where they are, what they define, and what can be wrong before one is tried.

answers/01_map_fetcher.py        a copy of the skeleton, made on first use; git ignores the folder
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import re
import shutil
import sys
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notebooks.exercises.exercise import FOLDER, Exercise, Finding, exercises, find
from notebooks.exercises.patching import replaced

# Where the answers are; a teacher can point it at a learner's folder.
ANSWERS = Path(os.environ.get("MINIDL_ANSWERS", FOLDER / "answers"))


def provide(exercise: Exercise, folder: Path = ANSWERS) -> Path:
    """The learner's file; if there is none, a copy of the skeleton."""
    path = folder / exercise.file
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(exercise.skeleton, path)
    return path


def provide_all(folder: Path = ANSWERS) -> None:
    for each in exercises().values():
        provide(each, folder)


class NotAttempted(Exception):
    """It still contains `raise NotImplementedError`."""


class Refused(Exception):
    """The answer cannot be tried."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.cause)
        self.finding = finding


@dataclass
class Answer:
    """A learner's file that loads: its functions can take the place of minidl's."""

    exercise: Exercise
    path: Path
    functions: dict[str, Any]  # reference -> the learner's
    helpers: list[tuple[type, str, Any]]  # what else its classes define, for minidl's class of the same name
    names: dict[str, Any]  # everything that the file defines

    def function(self, name: str = "") -> Any:
        """The learner's function whose reference ends with this name; the only one, without a name."""
        found = [value for reference, value in self.functions.items() if reference.endswith(name)]
        assert len(found) == 1, name
        return found[0]

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """minidl with the learner's functions."""
        with contextlib.ExitStack() as stack:
            for owner, name, helper in self.helpers:
                if not hasattr(owner, name):  # it is there already if this is within another `at_work`
                    setattr(owner, name, helper)
                    stack.callback(delattr, owner, name)
            for reference, function in self.functions.items():
                owner, _, old = find(reference)
                stack.enter_context(replaced(old, function, owner))
            yield

    def line_of(self, error: BaseException) -> int:
        """The line of the learner's file that an exception came from, here or in a worker; 0: none."""
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(self.path)
        ]
        told = re.findall(rf'File "{re.escape(str(self.path))}", line (\d+)', str(error))  # with a worker's error
        return int((lines or told or [0])[-1] or 0)

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
        raise _refused("cannot be read", path, str(error), "Save it as text, in UTF-8.") from None
    try:
        tree = ast.parse(source, str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        what = f"line {error.lineno}: {error.msg}" + (f"   {line}" if line else "")
        raise _refused("syntax error", path, what, "Python cannot parse the file. Was it saved half way?") from None
    except ValueError as error:  # null bytes
        raise _refused("syntax error", path, str(error), "Python cannot parse the file.") from None
    _still_to_write(exercise, tree)
    _without_inheritance(exercise, tree)
    _no_reference(exercise, tree, path)
    _no_way_round(tree, path)
    module = types.ModuleType(f"answer_{exercise.id}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses and pickle look for it
    try:
        exec(compile(tree, str(path), "exec"), vars(module))
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        what = f"line {lines[-1] if lines else '?'}: {type(error).__name__}: {error}"
        raise _refused("does not load", path, what, "Importing the file raises.") from None
    functions = {each: _function(module, each, path) for each in exercise.references}
    return Answer(exercise, path, functions, list(_helpers(module, exercise, path)), vars(module))


def _helpers(module: types.ModuleType, exercise: Exercise, path: Path) -> Iterator[tuple[type, str, Any]]:
    """Methods and attributes that the learner has added to a class of the skeleton. Refused if minidl's class has one
    of that name: it would be replaced for all who use it."""
    asked = {reference.rpartition(":")[2] for reference in exercise.references}
    for owner in {find(reference)[0] for reference in exercise.references}:
        if not isinstance(owner, type):
            continue
        for name, helper in vars(getattr(module, owner.__name__)).items():
            if f"{owner.__name__}.{name}" not in asked and name in ("__init__", "__new__"):
                cause = (
                    f"Your methods are put into minidl's {owner.__name__}, which makes its fields itself. Make a "
                    "field of your own where it is first needed, or give the class an attribute."
                )
                raise _refused("makes fields", path, f"{owner.__name__}.{name}", cause, "only methods of your own")
            if f"{owner.__name__}.{name}" in asked or name.startswith("__"):
                continue
            if hasattr(owner, name):
                cause = (
                    f"minidl's {owner.__name__} has a `{name}` of its own, which the loader needs: choose another name."
                )
                raise _refused("name is taken", path, f"{owner.__name__}.{name}", cause, "a name of your own")
            yield owner, name, helper


def _refused(mistake: str, path: Path, got: str, cause: str, expected: str = "a Python file") -> Refused:
    return Refused(Finding(mistake, f"reading {path.name}", got, expected, cause))


def _still_to_write(exercise: Exercise, tree: ast.Module) -> None:
    """NotAttempted if a function, or a file without functions, is still as in the skeleton."""
    if not exercise.references and ast.dump(tree) == ast.dump(ast.parse(exercise.skeleton.read_text(encoding="utf-8"))):
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
    for node in [each for each in tree.body if isinstance(each, ast.ImportFrom)]:
        node.names = [each for each in node.names if each.name not in owners - used]
        if not node.names:
            tree.body.remove(node)


def _no_reference(exercise: Exercise, tree: ast.Module, path: Path) -> None:
    """Refused if the answer imports what it should implement."""
    own = {reference.rpartition(":")[2].rpartition(".")[2] for reference in exercise.references}
    owners = {reference.rpartition(":")[2].partition(".")[0] for reference in exercise.references}
    module_names = {reference.partition(":")[0] for reference in exercise.references}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.ImportFrom, ast.Import, ast.Attribute)):
            continue
        if isinstance(node, ast.ImportFrom):
            taken = [each.name for each in node.names if each.name in {*own, *owners, *exercise.forbidden, "*"}]
        elif isinstance(node, ast.Import):
            taken = [each.name for each in node.names if each.name in {*module_names, "importlib"}]
        else:
            taken = [node.attr] if node.attr in {*owners, *exercise.forbidden} else []
        if taken:
            what = f"line {node.lineno}: {ast.unparse(node)}"
            cause = f"`{taken[0]}` is, or leads to, the solution. Write it yourself."
            raise _refused("imports the reference", path, what, cause, "an answer of your own")


# What leads to the reference or the grader by another way. It keeps nobody out who wants to get in, which is the
# examination's affair; but it says early, and in which line, what is not allowed.
MODULES = {"builtins", "ctypes", "gc", "importlib", "inspect", "marshal", "notebooks", "pkgutil", "runpy", "tests"}
NAMES = {"__builtins__", "__import__", "eval", "exec"}
SIMULATED = "minidl.world.simulated"
ATTRIBUTES = {"__closure__", "__code__", "__globals__", "__subclasses__", "_getframe", "f_back", "modules"}


def _no_way_round(tree: ast.Module, path: Path) -> None:
    """Refused if it looks for the reference, the grader, or the simulated world."""
    for node in ast.walk(tree):
        wholes: list[str] = []
        if isinstance(node, ast.Import):
            wholes = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            wholes = [f"{node.module}.{each.name}" for each in node.names]
        taken = [each for each in wholes if each.split(".")[0] in MODULES or each.startswith(SIMULATED)]
        taken += [f"sys.{each[4:]}" for each in wholes if each.startswith("sys.") and each[4:] in ATTRIBUTES]
        if isinstance(node, ast.Name) and node.id in NAMES:
            taken.append(node.id)
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            taken.append(node.attr)
        if taken:
            what = f"line {node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]
            cause = f"`{taken[0]}` leads to minidl's own code or to the grader: the exercise can be solved without."
            raise _refused("goes round the exercise", path, what, cause, "an answer of your own")


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
        raise _refused(
            "function is missing",
            path,
            f"no function {dotted}",
            f"Keep `{name}` where the skeleton has it.",
            f"def {name}",
        )
    wanted, has = (list(inspect.signature(each).parameters) for each in (original, there))
    if wanted != has:
        raise _refused(
            "wrong signature",
            path,
            f"def {name}({', '.join(has)})",
            "The loader calls the function with the skeleton's parameters: keep their names and their order.",
            f"def {name}({', '.join(wanted)})",
        )
    if inspect.isgeneratorfunction(there) and not inspect.isgeneratorfunction(original) and name != "__iter__":
        raise _refused(
            "is a generator",
            path,
            f"{name} has a yield",
            "A function with a `yield` in it does not run when it is called.",
            "a function",
        )
    return there
