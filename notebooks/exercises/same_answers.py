"""Which answers are the same but for names, comments, layout, docstrings, annotations and imports.

outline("def f(a): return a + 1") == outline("def f(b):  # mine\n    return b + 1")
"""

from __future__ import annotations

import ast
import hashlib

from notebooks.exercises.exercise import Exercise
from notebooks.exercises.skeleton import generate

SMALL = 90  # nodes of syntax more than the skeleton: below, two who think alike write the same


def outline(text: str) -> str:
    """What is left of a program without all that, as a hash; "" if it is no program."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ""
    return hashlib.sha256(ast.dump(_Plain(_bound(tree)).visit(tree)).encode()).hexdigest()


def same(which: Exercise, texts: dict[str, str]) -> list[list[str]]:
    """Groups of learners whose answers are the same. minidl's own is among them: "minidl". Short answers, and the names
    of exercise 15, are left out: of these many are the same by themselves."""
    if not which.references:
        return []
    skeleton = _size(which.skeleton.read_text(encoding="utf-8"))
    groups: dict[str, list[str]] = {}
    for learner, text in [*texts.items(), ("minidl", generate(which, solved=True))]:
        key = outline(text)
        if key and _size(text) - skeleton >= SMALL:
            groups.setdefault(key, []).append(learner)
    return [each for each in groups.values() if len(each) > 1]


def _size(text: str) -> int:
    try:
        return sum(1 for _ in ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return 0


def _bound(tree: ast.AST) -> set[str]:
    """The names that a program gives: to variables, arguments, functions, attributes, exceptions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


class _Plain(ast.NodeTransformer):
    """Names become numbers, in the order in which they occur; what changes nothing goes."""

    def __init__(self, bound: set[str]) -> None:
        self.bound = bound
        self.numbers: dict[str, str] = {}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("name", "id", "arg", "attr"):
            name = getattr(node, field, None)
            if isinstance(name, str) and name in self.bound:
                setattr(node, field, self.numbers.setdefault(name, f"name {len(self.numbers)}"))
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None and not isinstance(node, ast.AnnAssign):
                setattr(node, field, None)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [each for each in body if not isinstance(each, (ast.Import, ast.ImportFrom)) and not _is_text(each)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
        return super().generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.visit(ast.Assign(targets=[node.target], value=node.value))


def _is_text(node: ast.stmt) -> bool:
    """A docstring, or another text that stands for itself."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
