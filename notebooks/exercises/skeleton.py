"""The file that a learner begins with, generated from the reference: signature and docstring stay, the body goes.

    python -m notebooks.exercises.skeleton 07 no_buffer      print it with a known mistake in place of its gaps

What a body uses from its module is imported at the top: these are the names the learner can use.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from notebooks.exercises.exercise import Edit, Exercise, exercise, find, known

WIDTH = 100
TODO = "raise NotImplementedError"
MADE = (
    "Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own when you "
    "first need it."
)


def generate(which: Exercise, solved: bool = False) -> str:
    """The text of a skeleton; with the reference's bodies, if `solved`."""
    if not which.references:
        return f"{_head(which)}\n{_script(which.number, solved)}"
    show = _whole if solved else _emptied
    functions = [find(each) for each in which.references]
    modules: dict[str, list[Any]] = {}
    for _, _, function in functions:
        modules.setdefault(function.__module__, []).append(function)
    parts = [_head(which), "from __future__ import annotations\n", _import_lines(modules)]
    owners: dict[Any, list[Any]] = {}
    for owner, _, function in functions:
        owners.setdefault(owner, []).append(function)
    for owner, each in owners.items():
        if inspect.isclass(owner):
            body = "\n".join(textwrap.indent(show(function), "    ") for function in each)
            parts.append(f"\nclass {owner.__name__}:\n{body}")
        else:
            parts.extend("\n" + show(function) for function in each)
    return "\n".join(part for part in parts if part)


def _script(number: int, solved: bool) -> str:
    """The two exercises that ask for no function."""
    from notebooks.exercises import bugs, make_it_fast

    return bugs.text(solved) if number == bugs.NUMBER else make_it_fast.text(solved)


def reference(which: Exercise) -> str:
    """The source of what the exercise asks for."""
    if not which.references:
        return _script(which.number, True)
    return "\n".join(
        f"# {each.partition(':')[0].replace('.', '/')}.py\n{_whole(find(each)[2])}" for each in which.references
    )


def edited(which: Exercise, edit: Edit) -> str:
    """The text of a known wrong answer. Calls of `emit` are left out: no judge may need them."""
    text = generate(which, solved=True)
    for name, body in edit.bodies.items():
        (function,) = (
            each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef) and each.name == name
        )
        text = _replace(text, function.body, body)
    head, quotes, code = text.partition('\n"""\n')
    for old, new in edit.changes:
        if code.count(old) != 1:
            raise ValueError(f"exercise {which.id}, {edit.name}: {old!r} is there {code.count(old)} times in\n{code}")
        code = code.replace(old, new)
    return without_emit(head + quotes + code)


def without_emit(text: str) -> str:
    """The same with `pass` for each call of `emit`."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    calls = [node for node in calls if ast.unparse(node).startswith("emit(")]
    for node in sorted(calls, key=lambda node: node.lineno, reverse=True):
        text = _replace(text, [node], "pass")
    return text


def _replace(text: str, statements: list[Any], new: str) -> str:
    """Other lines in place of those of these statements, indented like them."""
    lines = text.splitlines()
    first, last = statements[0], statements[-1]
    indented = textwrap.indent(textwrap.dedent(new).strip(), " " * first.col_offset)
    lines[first.lineno - 1 : last.end_lineno] = indented.splitlines()
    return "\n".join(lines) + "\n"


def _head(which: Exercise) -> str:
    paragraphs = [textwrap.fill(" ".join(each.split()), WIDTH) for each in which.task.split("\n\n")]
    width = max(map(len, which.legend), default=0)
    legend = [
        textwrap.fill(meaning, WIDTH, initial_indent=f"    {name:<{width}}  ", subsequent_indent=" " * (width + 6))
        for name, meaning in which.legend.items()
    ]
    lines = [f'"""Exercise {which.number}: {which.title}.', "", "\n\n".join(paragraphs)]
    if legend:
        lines += ["", "Legend", *legend]
    if any("." in each.rpartition(":")[2] for each in which.references):
        lines += ["", *textwrap.wrap(MADE, WIDTH)]
    lines += [
        "",
        f"Check it with `python -m notebooks.exercises check {which.id}`; `hint {which.id}` helps.",
        f"It goes with notebooks/{which.notebook}.",
        '"""',
        "",
    ]
    return "\n".join(lines)


def _whole(function: Any) -> str:
    return textwrap.dedent(inspect.getsource(function))


def _emptied(function: Any) -> str:
    """The source of a function without its body, but with its docstring, if it has one."""
    source = textwrap.dedent(inspect.getsource(function))
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    docstring = ast.get_docstring(node, clean=True)
    signature = "\n".join(source.splitlines()[: node.body[0].lineno - 1])
    text = f'"""{docstring}"""' if docstring else ""
    if docstring and "\n" in docstring and not docstring.endswith("\n"):
        text = f'"""{docstring}\n"""'
    body = "\n".join(each for each in (text, TODO) if each)
    return f"{signature}\n{textwrap.indent(body, '    ')}\n"


def _import_lines(modules: dict[str, list[Any]]) -> str:
    """Import lines for what {module: functions} use, sorted as ruff sorts them."""
    plain, taken = set(), dict[str, set[str]]()
    for module, functions in modules.items():
        for source, name in _imported(sys.modules[module], functions):
            if source:
                taken.setdefault(source, set()).add(name)
            else:
                plain.add(name)
    lines = {name: f"import {name}\n" for name in plain}
    lines |= {
        source: f"from {source} import {', '.join(sorted(names, key=_order))}\n" for source, names in taken.items()
    }
    groups: list[list[str]] = [[], [], []]
    for source in sorted(lines, key=lambda each: (lines[each].startswith("from"), each)):
        package = source.split(".")[0]
        groups[0 if package in sys.stdlib_module_names else 2 if package == "minidl" else 1].append(lines[source])
    return "\n".join("".join(group) for group in groups if group)


def _imported(module: ModuleType, functions: list[Any]) -> Iterator[tuple[str, str]]:
    """(module, name) for everything that these functions use from their module; ("", name) for an imported module."""
    used = {name for function in functions for name in _names(function)} - set(vars(builtins))
    written = {function.__name__ for function in functions}
    given: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for each in node.names:
                name = each.asname or each.name.split(".")[0]
                if name in used:
                    given.add(name)
                    alias = each.name + (f" as {each.asname}" if each.asname else "")
                    yield (str(node.module), alias) if isinstance(node, ast.ImportFrom) else ("", alias)
    for name in used - given - written:
        if name in vars(module):
            yield module.__name__, name


def _names(function: Any) -> set[str]:
    """All names in a function's source, including its annotations."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _order(name: str) -> tuple[int, str]:
    """Constants, classes, functions."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


if __name__ == "__main__":
    print(edited(exercise(sys.argv[1]), known(exercise(sys.argv[1]).id)[sys.argv[2]]), end="")
