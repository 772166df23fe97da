"""The file that a learner begins with, generated from the reference: signature and docstring stay, the body goes.

    python -m notebooks.exercises.skeleton        rewrite all skeletons (a test compares them)

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

from notebooks.exercises.exercise import Exercise, exercises, find

WIDTH = 100
TODO = "raise NotImplementedError"


def generate(exercise: Exercise, solved: bool = False) -> str:
    """The text of a skeleton; with the reference's bodies, if `solved`."""
    if exercise.text is not None:
        return f"{_head(exercise)}\n{exercise.text(solved)}"
    show = _whole if solved else _emptied
    functions = [find(each) for each in exercise.references]
    modules: dict[str, list[Any]] = {}
    for _, _, function in functions:
        modules.setdefault(function.__module__, []).append(function)
    imports = _import_lines(modules)
    parts = [_head(exercise), "from __future__ import annotations\n", imports]
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


def _head(exercise: Exercise) -> str:
    paragraphs = [textwrap.fill(" ".join(each.split()), WIDTH) for each in exercise.task.strip().split("\n\n")]
    width = max(map(len, exercise.legend), default=0)
    legend = [
        textwrap.fill(meaning, WIDTH, initial_indent=f"    {name:<{width}}  ", subsequent_indent=" " * (width + 6))
        for name, meaning in exercise.legend.items()
    ]
    lines = [f'"""Exercise {exercise.number}: {exercise.title}.', "", "\n\n".join(paragraphs)]
    if legend:
        lines += ["", "Legend", *legend]
    if any("." in each.rpartition(":")[2] for each in exercise.references):
        made = (
            "Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own "
            "when you first need it."
        )
        lines += ["", *textwrap.wrap(made, WIDTH)]
    lines += [
        "",
        f"Check it with `python -m notebooks.exercises check {exercise.id}`; `hint {exercise.id}` helps.",
        f"It goes with notebooks/{exercise.notebook}.",
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


def main() -> None:
    for each in exercises().values():
        each.skeleton.write_text(generate(each), encoding="utf-8")
        print(each.skeleton.name)


if __name__ == "__main__":
    main()
