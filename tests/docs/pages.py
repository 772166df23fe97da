"""What a page of the docs refers to, and whether it exists.

Legend
    page    a Markdown file
    span    `minidl/events.py`             code between backticks, outside code blocks
    slug    "1-a-queue-has-one-producer"   the anchor that GitHub makes of a heading
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from minidl import events
from notebooks.exercises.exercise import exercises
from tests.minidl.test_structure import exists, torch_names
from tracing.__main__ import make_parser
from tracing.views.export.jsonl import SCHEMA

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PACKAGES = ("minidl", "tracing", "notebooks", "docs", "tests")
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
EXERCISES = {"list", "check", "watch", "hint", "reset", "together", "grade"}
IN_WORDS = {"DIR", "FILE", "NN", "COMMAND", "NAME", "PYTHON", "TODO"}  # capitals that stand for something else


def blocks(text: str, language: str) -> list[str]:
    return [match[3] for match in BLOCK.finditer(text) if match[2] == language]


def prose(text: str) -> str:
    """Without code blocks."""
    return BLOCK.sub("", text)


def spans(text: str) -> list[str]:
    return CODE.findall(prose(text))


# ---- links


@functools.cache
def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *#*$", prose(page.read_text(encoding="utf-8")), re.MULTILINE):
        words = LINK.sub(r"\1", heading).replace("`", "").replace("*", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Relative links to nothing. With a label in backticks, `[name](file.py)`, the file must define that name."""
    for label, target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in slugs(path):
            yield f"{target}: no such heading"
        elif path.suffix == ".py" and re.fullmatch(r"`\w+`", label) and label.strip("`") not in defined(path):
            yield f"{target} does not define {label}"


@functools.cache
def defined(path: Path) -> set[str]:
    """Functions, methods, classes, and all that is assigned to a name or an attribute."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


# ---- names

MADE = {"notebooks/exercises/answers/"}  # by commands; a fresh clone does not have it


@functools.cache
def known() -> set[str]:
    """Every name that our packages define."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "answers" not in path.parts]
    return set().union(*map(defined, paths))


@functools.cache
def files() -> set[str]:
    """Names of the Python files of our packages."""
    return {path.name for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def unknown(span: str) -> str:
    """What is wrong with a span of code that looks like ours; "" for nothing."""
    word = re.sub(r"\(.*\)$", "", span)  # a call
    for looks_like, is_known, complaint in CHECKS:
        if re.fullmatch(looks_like, word):
            return "" if is_known(word) else complaint
    return ""


def found(dotted: str) -> bool:
    """Whether there is such a module, imported here or not."""
    try:
        return importlib.util.find_spec(dotted) is not None
    except ModuleNotFoundError:
        return False


@functools.cache
def torch_files() -> set[str]:
    import torch.utils.data

    return {path.name for path in Path(torch.utils.data.__file__).parent.rglob("*.py")}


@functools.cache
def capitals() -> set[str]:
    of_make = set(re.findall(r"^([A-Z_]+) *[?:]?=", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    of_system = {"MINIDL_ANSWERS", *signal.Signals.__members__}
    return {*events.Kind.__members__, *events.Queue.__members__, *known(), *of_make, *of_system, *IN_WORDS}


CHECKS: list[tuple[str, Callable[[str], bool], str]] = [  # what a span looks like, whether there is one, what if not
    (r"(minidl|tracing|notebooks|tests|docs)/[\w./-]*", lambda it: it in MADE or (ROOT / it).exists(), "no such file"),
    (r"(?!my|train|pkg)[\w/]+\.py", lambda it: it.split("/")[-1] in torch_files() | files(), "no such module"),
    (r"(minidl|tracing|notebooks|tests)(\.\w+)+", lambda it: exists(it) or found(it) or it == SCHEMA, "no such name"),
    (r"_[a-z]\w*", lambda it: it in known() | torch_names(), "no such attribute"),
    (r"trace\.\w+", lambda it: it[6:] in defined(ROOT / "tracing/trace/trace.py"), "no such attribute of a trace"),
    (r"[A-Z][A-Z_]{2,}", lambda it: it in capitals(), "no such event or constant"),
    (r"[A-Z]\w+\.\w+", lambda it: it.partition(".")[2] in known() | torch_names(), "no such method"),
]


# ---- commands


def commands(text: str) -> Iterator[str]:
    """Command lines: spans of code, and lines of blocks without a language."""
    lines = [line.strip() for block in blocks(text, "") for line in block.splitlines()]
    for line in [*spans(text), *lines]:
        if re.match(r"(\w+=\S+ +)*(\S*python|make)( |$)", line):
            yield line


def wrong_command(line: str) -> str:
    """What is wrong with a command line of ours; "" for nothing."""
    words = [word for word in shlex.split(line.partition("#")[0]) if not re.match(r"\w+=", word) or "-" in word[:1]]
    if words[0] == "make":
        wrong = [word for word in words[1:] if re.fullmatch("[a-z]+", word) and word not in targets()]
        return f"no target {wrong[0]}" if wrong else ""
    if "-m" not in words[:3]:
        return ""
    module, *rest = words[words.index("-m") + 1 :]
    if module.split(".")[0] in PACKAGES and not found(module):
        return f"no module {module}"
    if module == "notebooks.exercises" and rest:
        if rest[0] not in EXERCISES:
            return f"no command {rest[0]}"
        return "" if len(rest) < 2 or not rest[1].isdigit() or rest[1] in exercises() else f"no exercise {rest[1]}"
    return wrong_arguments(rest) if module == "tracing" and rest and rest[0] != "COMMAND" else ""


def wrong_arguments(words: list[str]) -> str:
    """What is wrong with the arguments of `python -m tracing`: there must be such a command, with such options."""
    (subparsers,) = (each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction))
    parser = subparsers.choices.get(words[0])
    if parser is None:
        return f"no command {words[0]}"
    there = {"--help", *(option for action in parser._actions for option in action.option_strings)}
    if words[0] == "run":  # what follows the script belongs to the script
        words = list(words[: next((n + 1 for n, word in enumerate(words) if word.endswith(".py")), len(words))])
    wrong = [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in there]
    return f"no option {wrong[0]}" if wrong else ""


@functools.cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
