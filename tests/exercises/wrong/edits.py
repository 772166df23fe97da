"""Wrong answers, kept as edits of their references: the text of one is the solved exercise with the edit made.

wrong_answers()["07"]["no_buffer"].text(exercise("07"))
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import textwrap

from notebooks.exercises.exercise import Exercise
from notebooks.exercises.skeleton import generate
from tests.exercises import wrong


class Wrong:
    """A wrong answer: the mistake that its grader must name, and how it differs from the reference.

    Wrong("fills worker 0 first", ("old text", "new text"), ..., _choose_worker="the whole body of this function")

    Whole bodies are put in first, then each old text, which must occur exactly once, is replaced.
    """

    def __init__(self, mistake: str, *edits: tuple[str, str], **bodies: str) -> None:
        self.mistake = mistake
        self.edits = edits
        self.bodies = bodies

    def text(self, exercise: Exercise) -> str:
        """What the learner's file would hold."""
        head, quotes, code = solved(exercise, **self.bodies).partition('\n"""\n')
        for old, new in self.edits:
            assert code.count(old) == 1, f"exercise {exercise.id}: {old!r} is there {code.count(old)} times in\n{code}"
            code = code.replace(old, new)
        return without_emit(head + quotes + code)


def solved(exercise: Exercise, **bodies: str) -> str:
    """The text of the solved exercise, with these bodies for the functions of these names."""
    text = generate(exercise, solved=True)
    for name, body in bodies.items():
        found = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef) and each.name == name]
        assert len(found) == 1, f"{len(found)} functions of exercise {exercise.id} are called {name}"
        text = _replace(text, found[0].body, body)
    return text


def without_emit(text: str) -> str:
    """The same with `pass` for each call of `emit`: exercises allow leaving them out, so no grader may need them."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    calls = [node for node in calls if ast.unparse(node).startswith("emit(")]
    for node in sorted(calls, key=lambda node: node.lineno, reverse=True):
        text = _replace(text, [node], "pass")
    return text


def _replace(text: str, statements: list[ast.stmt], new: str) -> str:
    """Other lines in place of those of these statements, indented like them."""
    lines = text.splitlines()
    first, last = statements[0], statements[-1]
    indented = textwrap.indent(textwrap.dedent(new).strip(), " " * first.col_offset)
    lines[first.lineno - 1 : last.end_lineno] = indented.splitlines()
    return "\n".join(lines) + "\n"


def wrong_answers() -> dict[str, dict[str, Wrong]]:
    """{"07": {"no_buffer": ..., ...}, ...}: of all exercises."""
    names = [each.name for each in pkgutil.iter_modules(wrong.__path__) if each.name.startswith("e")]
    return {name[1:3]: importlib.import_module(f"{wrong.__name__}.{name}").WRONG for name in names if name[1].isdigit()}
