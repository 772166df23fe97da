"""The children that `tracing run` would not see: Python finds our sitecustomize through the environment, which -I, -E
and -S ignore, and a program may replace.

Each process of the run, as it starts another, looks at the command and the environment:
1. If only PYTHONPATH was replaced, our folder is put in front of it again: the child is recorded.
2. A process of multiprocessing, which inherits Python's flags, is told in its code to wait for loaders: it is recorded.
3. Of any other Python program that will not see us, the trace notes the command and why, and the report names it.

Not by an audit hook: Python calls that for each `id()` and `open()`, too, and for each class that it unpickles, which
slows down the load. Compare `python -m timeit 'id(0)'` with `python -m timeit -s 'import sys;
sys.addaudithook(lambda *_: None)' 'id(0)'`.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracing.recording import trace_directory

try:
    import _posixsubprocess
except ImportError:  # Windows
    _posixsubprocess = None  # type: ignore[assignment]

Environment = Mapping[Any, Any] | None  # None: that of this process

RUN = "TRACING_RUN"
IN_CHILDREN = str(Path(__file__).absolute().with_name("in_children"))  # with what Python runs as each of them starts
HERE = os.path.dirname(IN_CHILDREN)
SITE = os.path.join(IN_CHILDREN, "sitecustomize.py")
WAIT = f"exec(open({SITE!r}, 'rb').read() + b'wait()', {{'__name__': 'in_child', '__file__': {SITE!r}}}); "
PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
BEFORE_A_COMMAND = re.compile(r"\w+=|(env|exec|nohup|time)$")
OWN_ENVIRONMENT = "an environment of its own"


def python_path(others: str | None) -> str:
    """A PYTHONPATH by which children find us."""
    return IN_CHILDREN + (os.pathsep + others if others else "")


Note = Callable[[Sequence[str], str], None]


def noter(directory: Path) -> Note:
    """A function that notes in the trace a command that is started unseen, and why. Each is noted once."""
    noted: set[tuple[str, str]] = set()

    def note(words: Sequence[str], why: str) -> None:
        command = shlex.join([os.path.basename(words[0]), *words[1:]])
        command = command if len(command) <= 80 else f"{command[:80]}…"
        if (command, why) not in noted and len(noted) < trace_directory.MOST_CHILDREN:
            noted.add((command, why))
            trace_directory.note_unseen_child(directory, command, why)

    return note


def watch_for(directory: Path) -> Callable[[], None]:
    """Look at each child that this process, or one that it forks, starts. What is returned ends that."""
    note = noter(directory)

    def fork_exec(args: Any, paths: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *rest: Any) -> Any:
        with suppress(Exception):  # whatever is special about it, the child starts
            given = None if env is None else dict(each.split(b"=", 1) for each in env)
            args, new = amended(paths[-1], args, given, note)
            env = env if new is given else [os.fsencode(f"{name}={value}") for name, value in (new or {}).items()]
        return before[_posixsubprocess, "fork_exec"](args, paths, close_fds, pass_fds, cwd, env, *rest)

    def watched(name: str) -> Callable[..., Any]:
        def start(path: Any, args: Any = None, env: Any = None, *rest: Any, **more: Any) -> Any:
            new = env
            with suppress(Exception):
                command = ["sh", "-c", path] if name == "system" else args
                _, new = amended(command[0] if name == "system" else path, command, env, note)
            if name == "system":
                return before[os, name](path)
            if name == "execv":
                return before[os, name](path, args) if new is None else before[os, "execve"](path, args, new)
            return before[os, name](path, args, new, *rest, **more)

        start.__module__, start.__name__, start.__qualname__ = "os", name, name  # pickled by name, as the original is
        return start

    forks = [home for home in (_posixsubprocess, subprocess) if home is not None]
    now: dict[tuple[Any, str], Any] = {
        (home, name): fork_exec for home in forks for name in ("fork_exec", "_fork_exec")
    }
    for name in ("execv", "execve", "posix_spawn", "posix_spawnp", "system"):
        now[os, name] = watched(name)
    before = {(home, name): getattr(home, name) for home, name in now if hasattr(home, name)}
    for home, name in before:
        setattr(home, name, now[home, name])

    def end() -> None:
        for (home, name), original in before.items():
            setattr(home, name, original)

    return end


def amended(path: Any, args: Any, env: Environment, note: Note) -> tuple[Any, Environment]:
    """The arguments and the environment to start this child with, so that it is recorded. If it cannot be, they are as
    given, and the child is noted."""
    given = os.environ if env is None else {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    finds_us, ours = RUN in given, given.get("PYTHONPATH")
    if finds_us and IN_CHILDREN not in (ours or "").split(os.pathsep):
        env = {**given, "PYTHONPATH": python_path(ours)}
    path, words = os.fsdecode(path), [os.fsdecode(each) for each in args]
    for command in commands(path, words):
        found = list(itertools.dropwhile(BEFORE_A_COMMAND.match, command))
        if not found or not is_python(path if command is words else found[0], finds_us):
            continue
        replaced = any(re.match(rf"PYTHONPATH=(?!.*(\$|{re.escape(IN_CHILDREN)}))", each) for each in command)
        why = hiding_flag(found) or (OWN_ENVIRONMENT if replaced or not finds_us else None)
        if why is None or any("multiprocessing.resource_tracker" in each or HERE in each for each in found):
            continue  # that, like our own sampler of memory, loads nothing
        if finds_us and "-c" in words and words[words.index("-c") + 1].startswith("from multiprocessing."):
            code = words.index("-c") + 1
            args = [*words[:code], WAIT + words[code], *words[code + 1 :]]
        else:
            note(found, why)
    return args, env


def commands(path: str, words: list[str]) -> Iterator[list[str]]:
    """A command; if it is a shell's, the commands in its text."""
    if os.path.basename(path) not in ("sh", "bash", "dash", "zsh") or words[1:2] != ["-c"]:
        yield words
        return
    text = shlex.shlex(words[2].replace("\n", ";"), posix=True, punctuation_chars=True)
    text.whitespace_split = True
    for between, command in itertools.groupby(text, lambda word: set(word) <= set("();<>|&")):
        if not between:
            yield list(command)


def is_python(path: str, by_name: bool) -> bool:
    """Whether it runs Python. With `by_name` the file is not looked into: a script has no flags, as a rule."""
    if PYTHON.fullmatch(os.path.basename(path)):
        return True
    with suppress(OSError):
        return not by_name and re.match(rb"#!.*python", Path(path).open("rb").read(128)) is not None
    return False


def hiding_flag(words: Sequence[str]) -> str | None:
    """Which of a Python command's flags keeps our sitecustomize from running."""
    rest = iter(words[1:])
    for word in rest:
        if not re.match("-[a-zA-Z]", word):  # the script
            return None
        flags, *of_option = re.split("[cmWX]", word, maxsplit=1)
        if found := re.search("[IES]", flags):
            return f"-{found[0]}"
        if of_option and word[len(flags)] in "cm":
            return None
        if of_option == [""]:
            next(rest, None)  # of -W or -X
    return None
