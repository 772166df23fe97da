"""Mutants without end: every function of the loader, with each of many small changes, one at a time.

A change is made in the function's syntax tree; the function then gets the new code in place, so that its callers
have the bug, too. (mutmut and cosmic-ray, which know the usual changes, write each mutant to disk and start a test
command for it. Here a mutant is tried in a fork of a process that has everything imported, thousands of times faster.)

Not changed: `emit`, which only reports; the words of errors; annotations; what is at the level of a module or a class.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

MODULES = (
    *("deaths", "events", "iterator", "loader", "messages", "parallel", "pinning", "public"),
    *("queues", "serial", "shutdown", "signals", "startup", "states", "worker"),
    *(f"transport.{name}" for name in ("choice", "filling", "lending", "memory", "pickling")),
)
LIMITS = {"timeout", "patience", "deadline"}  # what such a name stands for ends a wait
IDS = {"epoch_id", "_epoch_id", "task_id", "worker_id", "_worker_id", "slot"}

Edit = Callable[[Any], None]  # changes a node of a copy of the tree, in place


@dataclass(frozen=True)
class Generated:
    """A mutant: the function `name` of a module, the line, and what is changed there."""

    module: str
    name: str  # "Producer.put"
    line: int
    words: str  # "`self._buffer.put(message)` is left out"
    place: int  # of the changed node in the function, as ast.walk counts
    edit: Edit

    def __str__(self) -> str:
        return f"{self.module}.{self.name}:{self.line}: {self.words}"


def generated() -> Iterator[Generated]:
    """All of them, in the order of the source. Two of one line that read the same are numbered."""
    known: Counter[str] = Counter()
    for module in MODULES:
        for name, function in functions(tree_of(module)):
            for each in of_function(module, name, function):
                known[str(each)] += 1
                number = known[str(each)]
                yield replace(each, words=f"{each.words} ({number})") if number > 1 else each


@functools.cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(Path(imported(module).__file__ or "").read_text(encoding="utf-8"))


def imported(module: str) -> ModuleType:
    return importlib.import_module(f"minidl.{module}")


def functions(tree: Any, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and the methods of its classes. (What is nested in one is changed as a part of it.)"""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node


def of_function(module: str, name: str, function: ast.FunctionDef) -> Iterator[Generated]:
    apart = [*filter(only_tells, ast.walk(function)), function.args, *function.decorator_list]  # the last: not its code
    skipped = {id(each) for node in apart for each in ast.walk(node)}
    for place, node in enumerate(ast.walk(function)):
        if id(node) not in skipped:
            for words, edit in (*of_statements(node, function), *of_expression(node)):
                yield Generated(module, name, getattr(node, "lineno", function.lineno), words, place, edit)


def only_tells(node: ast.AST) -> bool:
    """An event, an annotation, the text of an error."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    if isinstance(node, ast.Call) and name_of(node.func) in ("emit", "emit_failed", "_emit_send_failed"):
        return True
    return isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Global, ast.arg))


# ---- what is changed


def of_statements(node: ast.AST, function: ast.FunctionDef) -> Iterator[tuple[str, Edit]]:
    """Statements left out, exchanged, done twice; arms and guards taken away."""
    if node is function:
        yield "it returns at once", lambda node: node.body.insert(0, ast.Return(None))
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if not isinstance(block, list):
            continue
        for k, statement in enumerate(block):
            if silent(statement) or (statement is function.body[-1] and brief(statement) == "return None"):
                continue
            text = f"`{brief(statement)}`"
            if not isinstance(statement, (ast.If, ast.With)):  # there: the condition, the guard
                yield f"{text} is left out", functools.partial(put, field=field, k=k, new=[ast.Pass()])
            if is_send(statement):
                yield f"{text} twice", functools.partial(twice, field=field, k=k)
            if k + 1 < len(block) and can_matter(statement, block[k + 1], function):
                yield f"{text} after `{brief(block[k + 1])}`", functools.partial(exchange, field=field, k=k)
    if isinstance(node, ast.Try):
        for k, handler in enumerate(node.handlers):
            what = ast.unparse(handler.type) if handler.type else ""
            yield f"no `except {what}`", functools.partial(drop_handler, k=k)
        if node.finalbody:
            yield "no `finally`", lambda node: setattr(node, "finalbody", [ast.Pass()])
    if isinstance(node, ast.With):
        yield f"no `with {ast.unparse(node.items[0])}`", unguarded


def of_expression(node: ast.AST) -> Iterator[tuple[str, Edit]]:
    """Conditions negated, forced or thinned; numbers, ids, bounds and flags that are wrong."""
    change = functools.partial(functools.partial, set_field)
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, ast.Constant):
        text = ast.unparse(node.test)
        yield f"not `{text}`", lambda node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
        for value in (True, False):
            yield f"`{text}` is always {value}", change(field="test", new=ast.Constant(value))
    if isinstance(node, ast.comprehension) and node.ifs:
        yield f"no `if {ast.unparse(node.ifs[0])}`", change(field="ifs", new=[])
    if isinstance(node, ast.BoolOp):
        for k, operand in enumerate(node.values):
            yield f"`{ast.unparse(node)}` without `{ast.unparse(operand)}`", functools.partial(thin, k=k)
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"the other of and, or in `{ast.unparse(node)}`", change(field="op", new=other)
    if isinstance(node, ast.Compare):
        for old, new in COMPARISONS:
            if isinstance(node.ops[0], old):
                yield f"`{ast.unparse(node)}` with {new.__name__}", change(field="ops", new=[new(), *node.ops[1:]])
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATORS:
        new = OPERATORS[type(node.op)]
        yield f"`{ast.unparse(node)}` with {new.__name__}", change(field="op", new=new())
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        values = [not node.value] if isinstance(node.value, bool) else [node.value + 1, node.value - 1]
        for value in values:
            yield f"{value} in place of {node.value}", change(field="value", new=value)
    if isinstance(node, ast.Call):
        yield from of_arguments(node)


def of_arguments(node: ast.Call) -> Iterator[tuple[str, Edit]]:
    for k, argument in enumerate(node.args):
        text = ast.unparse(argument)
        if name_of(argument) in IDS:
            more = ast.BinOp(argument, ast.Add(), ast.Constant(1))
            yield f"{text} + 1 in `{brief(node)}`", functools.partial(put, field="args", k=k, new=[more])
        is_wait = isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "wait", "get", "join_thread")
        if is_wait and (LIMITS & {name_of(each) for each in ast.walk(argument)} or text.isupper()):
            for new in (None, 0):
                words = f"{new} in place of {text} in `{brief(node)}`"
                yield words, functools.partial(put, field="args", k=k, new=[ast.Constant(new)])


COMPARISONS: list[tuple[Any, Any]] = [
    *((ast.Lt, ast.LtE), (ast.LtE, ast.Lt), (ast.Gt, ast.GtE), (ast.GtE, ast.Gt)),
    *((ast.Eq, ast.NotEq), (ast.NotEq, ast.Eq), (ast.Is, ast.IsNot), (ast.IsNot, ast.Is)),
    *((ast.In, ast.NotIn), (ast.NotIn, ast.In)),
]
OPERATORS: dict[Any, Any] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift},
}


def silent(statement: ast.stmt) -> bool:
    """Without it nothing is lost."""
    if isinstance(statement, ast.Expr):
        return only_tells(statement) or only_tells(statement.value)
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    return isinstance(statement, (ast.Pass, ast.Import, ast.ImportFrom, ast.Global, ast.FunctionDef))


def can_matter(first: ast.stmt, second: ast.stmt, function: ast.FunctionDef) -> bool:
    """Which of the two comes first: one of them calls something. (Nobody has the object that `__init__` makes.)"""
    if silent(second) or isinstance(first, ast.Return):
        return False
    both = (first, second)
    made = function.name == "__init__" and all(isinstance(each, (ast.Assign, ast.AnnAssign)) for each in both)
    return not made and any(isinstance(node, ast.Call) for each in both for node in ast.walk(each))


def is_send(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and name_of(call.func) in ("put", "append", "add", "_send", "_write")


def name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def brief(node: ast.AST, limit: int = 60) -> str:
    text = ast.unparse(node).split("\n")[0].rstrip(":")
    return text if len(text) <= limit else f"{text[:limit]}…"


def set_field(node: Any, field: str, new: Any) -> None:
    setattr(node, field, new)


def put(node: Any, field: str, k: int, new: list[Any]) -> None:
    getattr(node, field)[k : k + 1] = new


def twice(node: Any, field: str, k: int) -> None:
    block = getattr(node, field)
    block.insert(k, copy.deepcopy(block[k]))


def exchange(node: Any, field: str, k: int) -> None:
    block = getattr(node, field)
    block[k], block[k + 1] = block[k + 1], block[k]


def thin(node: Any, k: int) -> None:
    del node.values[k]
    if len(node.values) == 1:  # neither and nor or has a single operand
        node.values.append(node.values[0])


def drop_handler(node: Any, k: int) -> None:
    del node.handlers[k]
    if not node.handlers and not node.finalbody:
        node.finalbody = [ast.Pass()]
    if not node.handlers and node.orelse:
        node.body, node.orelse = [*node.body, *node.orelse], []


def unguarded(node: Any) -> None:
    """`with open(x) as y` becomes `if True`: the body alone. (What needs `y` fails at once.)"""
    node.items = [ast.withitem(ast.parse("__import__('contextlib').nullcontext()", mode="eval").body)]


# ---- putting it to work


def source_of(mutant: Generated) -> ast.Module:
    """The module with the change."""
    tree = copy.deepcopy(tree_of(mutant.module))
    (function,) = [each for name, each in functions(tree) if name == mutant.name and contains(each, mutant.line)]
    for place, node in enumerate(ast.walk(function)):
        if place == mutant.place:
            mutant.edit(node)
            break
    if not ast.get_docstring(function):
        function.body.insert(0, ast.Expr(ast.Constant("")))
    if any(isinstance(node, ast.Name) and node.id == "super" for node in ast.walk(function)) or takes_class(mutant):
        function.body.insert(1, ast.parse("__class__").body[0])  # as before, also where `super()` has been left out
    return ast.fix_missing_locations(tree)


def takes_class(mutant: Generated) -> bool:
    return "__class__" in function_of(mutant).__code__.co_freevars


def contains(function: ast.FunctionDef, line: int) -> bool:
    first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
    return first <= line <= (function.end_lineno or first)


def function_of(mutant: Generated) -> FunctionType:
    owner: Any = imported(mutant.module)
    *classes, name = mutant.name.split(".")
    for each in classes:
        owner = getattr(owner, each)
    found = vars(owner)[name]
    if isinstance(found, property):
        getters = [each for each in (found.fget, found.fset) if each is not None]
        found = next(each for each in getters if each.__code__.co_firstlineno <= mutant.line < end_of(each))
    found = getattr(found, "__func__", found)  # of a classmethod or staticmethod
    return getattr(found, "__wrapped__", found)


def end_of(function: Any) -> int:
    lines = [line for _, _, line in function.__code__.co_lines() if line]
    return max(lines) + 1


@contextlib.contextmanager
def at_work(mutant: Generated) -> Iterator[None]:
    """The loader with the change, in this process."""
    function, code = function_of(mutant), compile(source_of(mutant), f"<{mutant}>", "exec")
    before = function.__code__
    for name in mutant.name.split("."):
        codes = [each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name]
        code = next((each for each in codes if each.co_firstlineno == before.co_firstlineno), codes[0])
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = before
