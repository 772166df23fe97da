"""A copy of a trace to send to others: it contains nothing of the samples, nor any user paths.

What stays: when which thread did what, the loader's options, names of classes and functions, keys that are numbers,
types of errors, and where in the program its threads were seen: file, line, function, and what that line calls.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from tracing.recording import file_format as fmt
from tracing.recording.loader_text import PRODUCT

HIDDEN = "…"
_SEPARATOR = re.compile(r"/|\\|%2[Ff]")  # Linux', Windows', a URL's
_PATH = re.compile(r"(?<![\w.<])(/|[A-Za-z]:\\|\\\\|%2[Ff])[^\s'\"(),:;]+")
_IN_LIBRARY = re.compile(r"/(lib/python3\.|[\w-]+-packages/).*")
_PRODUCT = re.compile(rf"^{re.escape(str(PRODUCT))}/(?=tracing/|minidl/)")
_ERROR = re.compile(r"([\w.]+)\(.*\)", re.DOTALL)
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")
_CALLED = re.compile(r"(?<![\w./\\-])[A-Za-z_][\w.]*(?=\()")
_PLAIN_NAME = re.compile(r"[\w ()-]+")
_LOADERS_OWN = ("DataLoader worker ", "A batch was lost", "Pin memory thread ", "Too many open files", "next() was ")


def copy(source: Path, target: Path) -> None:
    """Make the directory `target`: what the trace in `source` says, minus samples and paths. It refers to the files
    that hold neither, so it lasts as long as `source`."""
    target.mkdir()
    for path in fmt.files_of(source):
        if path.suffix != ".jsonl":
            os.symlink(path.resolve(), target / path.name)
            continue
        hide = {"text": _text, "stacks": _stacks}.get(path.name.partition("-")[0], without_paths)
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        (target / path.name).write_text("".join(_line(line, hide) for line in lines), encoding="utf-8")


def _line(line: str, hide: Any) -> str:
    try:
        return json.dumps(hide(json.loads(line)), ensure_ascii=False) + "\n"
    except ValueError:  # the process was killed while it wrote this
        return ""


def _stacks(entry: Any) -> Any:
    """What a process's threads were in, without the lines' text: paths, names and numbers may stand in a string or a
    comment, of which the line may be a part."""
    for thread in entry["threads"]:
        thread["name"] = _thread(thread["name"])
        thread["frames"] = [(without_paths(file), *where, called(line)) for file, *where, line in thread["frames"]]
    return entry


def called(source: str) -> str:
    """What a line of code calls: "open(…), read(…)"."""
    return ", ".join(f"{name}({HIDDEN})" for name in _CALLED.findall(source))


def _thread(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else HIDDEN


def _text(entry: Any) -> Any:
    """A line of a text file: a thread's name, or the number of a text and the text."""
    if isinstance(entry, dict):
        return entry | {"name": _thread(entry["name"])}
    number, text = entry
    if isinstance(text, dict):  # a loader's options, or what a batch is made of
        return [number, without_paths(text)]
    return [number, _sentence(text) if isinstance(text, str) else _keys(text)]


def _sentence(text: str) -> str:
    """An error's type without its message; of the loader's own messages all but what they quote."""
    if error := _ERROR.fullmatch(text):
        return f"{error[1]}({HIDDEN})"
    return without_paths(_QUOTED.sub(HIDDEN, text)) if text.startswith(_LOADERS_OWN) else HIDDEN


def _keys(keys: Any) -> Any:
    if isinstance(keys, list):
        return [key if isinstance(key, int) else HIDDEN for key in keys]
    return keys if isinstance(keys, int) else HIDDEN


def without_paths(value: Any) -> Any:
    """Text, or lists and mappings of it, with the last part of each absolute path in its place."""
    if isinstance(value, dict):
        return {key: without_paths(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_paths(each) for each in value]
    if not isinstance(value, str):
        return value
    if value.startswith("/"):
        return _end_of(value)
    return _PATH.sub(lambda path: _end_of(path[0]), value)


def _end_of(path: str) -> str:
    """For a library's file, its place in the library: what the report says depends on whose line it is."""
    inside = _IN_LIBRARY.search(_PRODUCT.sub("/site-packages/", path))
    return HIDDEN + inside[0] if inside else _SEPARATOR.split(path)[-1]
