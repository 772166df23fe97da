"""The children that `tracing run` would not see: Python finds our sitecustomize through the environment, which -I, -E
and -S ignore, and a program may replace.

Each process of the run, as it starts another, looks at the command and the environment:
1. If only PYTHONPATH was changed, our folder is put in front of it again: the child is recorded.
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
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
ASSIGNMENT = re.compile(r"\w+=")
BEFORE_PYTHON = re.compile(  # what runs the command that follows it, after options of its own
    r"env|exec|nohup|time(out)?|(io)?nice|stdbuf|setsid|taskset|numactl|mpirun|srun|sudo|if|then|else|do|!|{"
)
HIDES = re.compile(  # in what stands before Python: what keeps our environment from it
    rf"\bPYTHONPATH=(?!\S*(\$\{{?PYTHONPATH|{re.escape(IN_CHILDREN)}))|\bunset .*\b(PYTHONPATH|{RUN})\b"
    rf"|-u ?(PYTHONPATH|{RUN})\b|\benv (\S+ )*?-(i|-ignore-environment)? |\bsudo "
)
WITHIN = re.compile(r"\$\(([^()]*)\)")  # a command whose output is a part of another
FOR_LATER = re.compile(r"unset( \w+)+ |(export )?(\w+=\S* )+")  # what a shell sets for the commands that follow
OWN_ENVIRONMENT = "an environment of its own"


def python_path(others: str | None) -> str:
    """A PYTHONPATH by which children find us, before any sitecustomize of the program's: ours runs that, too."""
    rest = others.split(os.pathsep) if others else []
    empty = [""] * (len(rest) > 1 and rest[-1] == IN_CHILDREN)  # without us "src:", which is src and the current folder
    return os.pathsep.join([IN_CHILDREN, *(each for each in rest if each != IN_CHILDREN), *empty])


Note = Callable[[Sequence[str], str], None]


def noter(directory: Path) -> Note:
    """A function that notes in the trace a command that is started unseen, and why. Each is noted once."""
    noted: set[tuple[str, str]] = set()

    def note(words: Sequence[str], why: str) -> None:
        command = shlex.join([os.path.basename(words[0]), *words[1:]])
        command = command.encode(errors="backslashreplace").decode()  # of a file's name that is not UTF-8
        command = command if len(command) <= 80 else f"{command[:80]}…"
        if (command, why) not in noted and len(noted) <= trace_directory.MOST_CHILDREN:
            noted.add((command, why))
            trace_directory.note_unseen_child(directory, command, why)

    return note


def watch_for(directory: Path) -> Callable[[], None]:
    """Look at each child that this process, or one that it forks, starts. What is returned ends that."""
    note = noter(directory)

    def fork_exec(args: Any, paths: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *rest: Any) -> Any:
        with suppress(Exception):  # whatever is special about it, the child starts
            given = None if env is None else dict(each.split(b"=", 1) for each in env)
            args, new = amended(paths, args, given, note, cwd)
            env = env if new is given else [os.fsencode(f"{name}={value}") for name, value in (new or {}).items()]
        return before[_posixsubprocess, "fork_exec"](args, paths, close_fds, pass_fds, cwd, env, *rest)

    def system(command: Any) -> int:
        with suppress(Exception):
            _, new = amended(["/bin/sh"], ["sh", "-c", command], None, note)
            if new is not None:
                command = f"export PYTHONPATH={shlex.quote(new['PYTHONPATH'])}; {os.fsdecode(command)}"
        return int(before[os, "system"](command))

    def watched(name: str) -> Callable[..., Any]:
        def start(path: Any, argv: Any, env: Any = None, *rest: Any, **more: Any) -> Any:
            new = env
            with suppress(Exception):
                file = shutil.which(path) if name == "posix_spawnp" else path
                _, new = amended([file or path], argv, env, note)
            if name == "execv":
                return before[os, name](path, argv) if new is None else before[os, "execve"](path, argv, new)
            return before[os, name](path, argv, new, *rest, **more)

        return start

    forks = [home for home in (_posixsubprocess, subprocess) if home is not None]
    now: dict[tuple[Any, str], Any] = {
        (home, name): fork_exec for home in forks for name in ("fork_exec", "_fork_exec")
    }
    now |= {(os, name): watched(name) for name in ("execv", "execve", "posix_spawn", "posix_spawnp")}
    now[os, "system"] = system
    before = {(home, name): getattr(home, name) for home, name in now if hasattr(home, name)}
    for home, name in before:
        if home is os:  # pickled by name, as the original is
            now[home, name].__module__, now[home, name].__name__, now[home, name].__qualname__ = "os", name, name
        setattr(home, name, now[home, name])

    def end() -> None:
        for (home, name), original in before.items():
            setattr(home, name, original)

    return end


def amended(paths: Iterable[Any], args: Any, env: Environment, note: Note, cwd: Any = None) -> tuple[Any, Environment]:
    """The arguments and the environment to start this child with, so that it is recorded. If it cannot be, they are as
    given, and the child is noted. It runs the first of the `paths` that can be run; if none can, there is no child."""
    given = os.environ if env is None else {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    finds_us, ours = RUN in given, given.get("PYTHONPATH")
    if finds_us and (ours or "").split(os.pathsep)[0] != IN_CHILDREN:
        env = {**given, "PYTHONPATH": python_path(ours)}
    search, folder = given.get("PATH", os.defpath), os.fsdecode(cwd or os.curdir)
    path = next(filter(None, (shutil.which(os.path.join(folder, os.fsdecode(each))) for each in paths)), "")
    words, hidden = [os.fsdecode(each) for each in args], not finds_us
    for command in commands(path, words) if path else ():
        names = [path if command is words else command[0], *command[1:]]
        at, python = python_in(names, search, folder)
        before = " ".join(names[:at]) + " "
        if python is None:
            hidden = hidden or (FOR_LATER.fullmatch(before) and HIDES.search(before)) is not None
            continue
        why = hiding_flag(python) or (OWN_ENVIRONMENT if hidden or HIDES.search(before) else None)
        if why is None or loads_nothing(python):
            continue
        if finds_us and "-c" in words and words[words.index("-c") + 1].startswith("from multiprocessing."):
            code = words.index("-c") + 1
            args = [*words[:code], WAIT + words[code], *words[code + 1 :]]
        else:
            note(command[at:], why)
    return args, env


def file_of(name: str, search: str, folder: str) -> str | None:
    """The file that a command's first word runs, if it can be run, in this folder and with this PATH."""
    return shutil.which(os.path.join(folder, name) if os.sep in name else name, path=search)


def commands(path: str, words: list[str]) -> Iterator[list[str]]:
    """A command; if it is a shell's, the commands in its text."""
    if os.path.basename(path) not in ("sh", "bash", "dash", "zsh"):
        yield words
        return
    of_option = re.compile("-[a-z]*o")
    options = itertools.takewhile(
        lambda n: words[n].startswith(("-", "+")) or of_option.fullmatch(words[n - 1]), range(1, len(words) - 1)
    )
    at = next((n for n in options if re.fullmatch("-[a-z]*c[a-z]*", words[n])), None)
    text = words[at + 1].replace("\\\n", " ").replace("\n", ";") if at is not None else ""
    text = ";".join([WITHIN.sub("$_", text), *WITHIN.findall(text)])
    split = shlex.shlex(text, posix=True, punctuation_chars=True)
    split.whitespace_split = True
    with suppress(ValueError):  # a quote that is not closed: in a here-document, say
        for between, command in itertools.groupby(split, lambda word: set(word) <= set("();<>|&")):
            if not between:
                yield list(command)


def python_in(names: list[str], search: str, folder: str) -> tuple[int, list[str] | None]:
    """Where in a command Python's begins, and all its words, those included with which a script begins ("#!"). If it
    runs no Python: its length, and None."""
    first = sum(1 for _ in itertools.takewhile(ASSIGNMENT.match, names))
    wrapped = first < len(names) and BEFORE_PYTHON.fullmatch(os.path.basename(names[first]))
    for at in range(first, len(names) if wrapped else min(first + 1, len(names))):
        if is_python(names[at]):
            return at, names[at:]
        file = file_of(names[at], search, folder)
        with suppress(OSError), open(file or "", "rb") as script:
            begin, *line = os.fsdecode(script.readline(256)).partition("#!")
            if not begin and (python := [*itertools.dropwhile(lambda word: not is_python(word), line[-1].split())]):
                return at, [*python, *names[at:]]
    return len(names), None


def is_python(path: str) -> bool:
    return PYTHON.fullmatch(os.path.basename(path)) is not None


def loads_nothing(python: list[str]) -> bool:
    """Whether a Python command is known to load nothing: of multiprocessing, our sampler of memory, or a question."""
    question = python[1:2] in (["-V"], ["--version"], ["-h"], ["--help"])
    return question or any("multiprocessing.resource_tracker" in each or HERE in each for each in python)


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
