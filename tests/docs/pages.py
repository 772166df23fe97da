"""What a page of the docs refers to, and whether it exists.

Legend
    page    a Markdown file
    span    `minidl/events.py`             code between backticks, outside code blocks
    slug    "1-a-queue-has-one-producer"   the anchor that GitHub makes of a heading
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import torch.utils.data

import notebooks.exercises.__main__
import tracing.__main__
from notebooks.exercises.exercise import exercises

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


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
        elif path.suffix == ".py" and re.fullmatch(r"`\w+`", label) and not defines(path, label.strip("`")):
            yield f"{target} does not define {label}"


def defines(path: Path, name: str) -> bool:
    """A function, a class, or something that is assigned to."""
    text = path.read_text(encoding="utf-8")
    return re.search(rf"\b(def|class) {name}\b|\b{name}(: [^=\n]+)? = ", text) is not None


# ---- names

TORCH = Path(torch.utils.data.__file__).parent
FOLDERS = [*(ROOT / name for name in ("minidl", "tracing", "notebooks", "docs")), TORCH]
PATH = r"(minidl|tracing|notebooks|tests|docs)/[\w./-]*"
OURS = r"(minidl|tracing|notebooks|trace|[A-Z]\w+)(\.\w+)+|_[a-z]\w*|[A-Z][A-Z_]{2,}|(?!my|train|pkg)[\w/]+\.py"
MADE = {"notebooks/exercises/answers/"}  # by commands; a fresh clone does not have it


@functools.cache
def vocabulary() -> set[str]:
    """Every word of our code and of torch's loader, and every part of a file's name."""
    paths = [path for folder in FOLDERS for path in folder.rglob("*.py") if "answers" not in path.parts]
    texts = [path.read_text(encoding="utf-8") for path in [*paths, ROOT / "Makefile", ROOT / "pyproject.toml"]]
    return set(re.findall(r"\w+", "\n".join([*texts, *map(str, [*paths, *ROOT.glob("*.md")])])))


def unknown(span: str) -> list[str]:
    """Of a span of code that looks like ours: the words that stand for nothing."""
    word = re.sub(r"\(.*\)$", "", span)  # a call
    if re.fullmatch(PATH, word):
        return [] if word in MADE or (ROOT / word).exists() else [word]
    return [each for each in re.findall(r"\w+", word) if each not in vocabulary()] if re.fullmatch(OURS, word) else []


# ---- commands


def commands(text: str) -> Iterator[str]:
    """Command lines: spans of code, and lines of blocks without a language."""
    lines = [line.strip() for block in blocks(text, "") for line in block.splitlines()]
    for line in [*spans(text), *lines]:
        if re.match(r"(\w+=\S+ +)*(\S*python|make)( |$)", line):
            yield line


def wrong_command(line: str) -> str:
    """What is wrong with a command line of ours; "" for nothing."""
    words = [word for word in shlex.split(re.sub("[#>].*", "", line)) if not re.match(r"\w+=", word)]
    if words[0] == "make":
        return ", ".join(word for word in words[1:] if re.fullmatch("[a-z]+", word) and word not in targets())
    if "-m" not in words[:3]:
        return ""
    module, *rest = words[words.index("-m") + 1 :]
    if module not in PARSERS or rest[:1] == ["COMMAND"]:
        return "" if importlib.util.find_spec(module) else f"no module {module}"
    parser = PARSERS[module]()
    (subparsers,) = (each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    for action in subparsers[rest[0]]._actions if rest and rest[0] in subparsers else ():
        action.required = False  # a text may leave them out
    said = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        args = parser.parse_args(rest)
        return "" if getattr(args, "number", None) in (None, "NN", *exercises()) else f"no exercise {args.number}"
    return said.getvalue()


PARSERS = {"tracing": tracing.__main__.make_parser, "notebooks.exercises": notebooks.exercises.__main__.make_parser}


@functools.cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
