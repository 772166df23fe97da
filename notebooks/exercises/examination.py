"""The examination: before an answer counts as passed, it is run once more, where nothing of the grader is to be found,
nor what the exercise asks for.

Its process (examinee.py) has torch, the answer, and a copy of minidl in which the functions that are asked for only
raise NotImplementedError. It is told what to run and sends back plain data; what is right it cannot know. That is
computed here, by minidl's own functions, in a process that the answer's has nothing to do with.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import json
import marshal
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import minidl
from notebooks.exercises.exam_questions import Question, drawn
from notebooks.exercises.exercise import FOLDER, Exercise, Finding
from notebooks.exercises.family import Family
from notebooks.exercises.keeper import ENDING

ROOT = FOLDER.parents[1]
SHIPPED = (
    *("exam_programs", "programs", "use_programs", "catalogue.as_minidl_does", "catalogue.death_programs"),
    *("catalogue.pinning_programs", "catalogue.scripted", "catalogue.worker_script"),
)
# torch has these, too.
TORCHS = {
    1: ["torch.utils.data._utils.fetch:_MapDatasetFetcher.fetch"],
    2: ["torch.utils.data._utils.collate:collate"],
    3: ["torch.utils.data.sampler:BatchSampler.__iter__"],
    4: ["torch.utils.data.distributed:DistributedSampler.__iter__"],
    9: ["torch.utils.data._utils.fetch:_IterableDatasetFetcher.fetch"],
}
VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")  # that it gets
LONGEST = 1 << 20  # bytes of a reply
SHOWN = 300  # characters of a value
ENDED = "the process that tried it has ended"
STARTS = 120.0  # seconds that the server may take to import torch


class Silent(Exception):
    """No reply came; why, in words."""


# ---- the copy


def without_bodies(source: str, paths: list[str]) -> str:
    """A module's source with `raise NotImplementedError` for the bodies of these functions ("MapFetcher.fetch")."""
    lines = source.splitlines()
    found = [(path, node) for path, node in _functions(ast.parse(source), "") if path in paths]
    assert len(found) == len(paths), paths
    for _, node in sorted(found, key=lambda each: -each[1].lineno):
        docstring = ast.get_docstring(node) is not None
        first = node.body[0].end_lineno if docstring else node.body[0].lineno - 1
        assert first is not None
        lines[first : node.end_lineno] = [" " * node.body[0].col_offset + "raise NotImplementedError"]
    return "\n".join(lines) + "\n"


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node


@functools.cache
def _compiled(source: str, name: str) -> bytes:
    """A .pyc file, so that each answer's process need not compile it; its time and size are not checked."""
    return MAGIC_NUMBER + b"\1\0\0\0" + bytes(8) + marshal.dumps(compile(source, name, "exec"))


@functools.cache
def copy_without(references: tuple[str, ...]) -> dict[str, bytes]:
    """Path -> content of each file that is shipped."""
    asked: dict[str, list[str]] = {}
    for reference in references:
        module, _, path = reference.partition(":")
        asked.setdefault(f"{module.replace('.', '/')}.py", []).append(path)
    package = Path(minidl.__file__).parent
    sources = {
        str(Path("minidl", each.relative_to(package))): each.read_text("utf-8") for each in package.rglob("*.py")
    }
    sources |= {path: without_bodies(sources[path], paths) for path, paths in asked.items()}
    sources["exam/__init__.py"] = ""
    for name in SHIPPED:
        text = Path(FOLDER, *name.split(".")).with_suffix(".py").read_text("utf-8")
        text = text.replace("notebooks.exercises.catalogue", "exam").replace("notebooks.exercises", "exam")
        sources[f"exam/{name.rpartition('.')[2]}.py"] = text
    files = {path: text.encode() for path, text in sources.items()}
    for path, text in sources.items():
        cached = Path(path).parent / "__pycache__" / f"{Path(path).stem}.{sys.implementation.cache_tag}.pyc"
        files[str(cached)] = _compiled(text, path)
    return files


# ---- the process


class _Server:
    """The process that the answers' processes are forked from. It ends when this process does."""

    def __init__(self) -> None:
        self.folder = folder = Path(tempfile.mkdtemp(prefix="examination-"))  # which it removes
        self.is_ready = False
        program = folder / "examination_server.py"
        program.write_bytes((FOLDER / "examinee.py").read_bytes())
        (folder / "keeper.py").write_bytes((FOLDER / "keeper.py").read_bytes())
        self.socket, theirs = socket.socketpair()
        known = {name: os.environ.get(name, "") for name in VARIABLES}
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(program), str(theirs.fileno())],
            cwd=folder,
            env={name: value for name, value in known.items() if value and str(ROOT) not in value},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the grader's affair
        )
        theirs.close()
        atexit.register(self.close)
        elsewhere = [each for each in sys.path if each and not (Path(each) / "minidl" / "__init__.py").exists()]
        self.socket.sendall(json.dumps([str(folder), *elsewhere]).encode())

    def fork(self, order: dict[str, Any], *descriptors: int) -> None:
        """Have an answer's process started. RuntimeError: the server has not come so far."""
        with _lock:
            if not self.is_ready:
                self.socket.settimeout(STARTS)
                with contextlib.suppress(OSError):
                    self.is_ready = self.socket.recv(1) == b"!"
                if not self.is_ready:
                    raise RuntimeError("the server of the examination has not started")
            socket.send_fds(self.socket, [json.dumps(order).encode()], list(descriptors))

    def close(self) -> None:
        self.socket.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)  # if it has not come so far


starts_or_ends = threading.Lock()  # multiprocessing looks after all children of this process whenever it starts one
_lock = threading.Lock()  # of the server
_drawing = threading.Lock()  # of the papers
_servers: list[_Server] = []  # the one that was started last
_papers: dict[str, list[tuple[Question, Any]]] = {}


def prepare() -> _Server:
    """The server. If it starts now, it imports torch meanwhile."""
    with _lock:
        if not _servers or _servers[0].process.poll() is not None:
            _servers[:] = [_Server()]
        return _servers[0]


class Examinee:
    """An answer's process: `ask` it."""

    def __init__(self, which: Exercise, path: Path, folder: Path, said: Path, family: Family) -> None:
        for name, content in copy_without(which.references).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        (folder / which.file).write_bytes(path.read_bytes())  # where it is may lead to the grader
        order = {"folder": str(folder), "file": which.file, "references": which.references}
        order["torchs"] = TORCHS.get(which.number, [])
        self.family = family
        self.control, control = socket.socketpair()
        self.talk, talk = socket.socketpair()
        with open(said, "ab") as file, control, talk:
            prepare().fork(order, control.fileno(), talk.fileno(), file.fileno())
        self.received = {self.control: b"", self.talk: b""}
        family.pid = int(self._line(self.control)["pid"])

    def ask(self, question: Question) -> Any:
        """What the program returns, or "raised ...". Raises Silent."""
        try:
            self.talk.sendall(json.dumps(question.asked).encode() + b"\n")
            return self._line(self.talk).get("value")
        except OSError:
            raise Silent(ENDED) from None

    def _line(self, source: socket.socket) -> dict[str, Any]:
        """The next message. What comes from the answer is not trusted: it is JSON, and of bounded length."""
        source.settimeout(0.05)
        while b"\n" not in self.received[source]:
            try:
                text = source.recv(1 << 16)
            except TimeoutError:
                if stuck := self.family.stuck():
                    raise Silent(f"no end: it {stuck}") from None
                continue
            if not text:
                raise Silent(ENDED)
            self.received[source] += text
            if len(self.received[source]) > LONGEST:
                raise Silent(f"a reply of more than {LONGEST} bytes")
        line, _, self.received[source] = self.received[source].partition(b"\n")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Silent("a reply that cannot be read")
        return found

    def close(self) -> None:
        """End it, and all that it has started."""
        self.talk.close()
        self.control.shutdown(socket.SHUT_WR)  # the keeper sees it, and closes the other side when it is done
        self.control.settimeout(ENDING)
        with contextlib.suppress(OSError):
            while self.control.recv(1 << 16):
                pass
        self.control.close()


# ---- the judge


def examined(which: Exercise, path: Path, folder: Path, said: Path, family: Family) -> Finding | None:
    """The first reply that is not right."""
    asked = paper(which)
    examinee = Examinee(which, path, folder, said, family)
    try:
        for question, right in asked:
            family.beat()
            beside = question.beside(folder, family.beat) if question.beside else contextlib.nullcontext(question.judge)
            try:
                with beside as judge:
                    got = examinee.ask(question)
            except Silent as why:
                return _finding(question, str(why), "a reply")
            wrong = judge(got) if judge is not None else _differ(got, right)
            if wrong is not None:
                return _finding(question, *wrong)
    finally:
        examinee.close()
    return None


def _differ(got: Any, right: Any) -> tuple[str, str] | None:
    return None if got == right else (_short(got), _short(right))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _finding(question: Question, got: str, expected: str) -> Finding:
    cause = (
        "All other checks have passed, but in a fresh process, which has only minidl and your file, with real workers "
        "and other numbers, it does something else. Does it depend on anything that it finds around it, or on numbers "
        "that the checks happen to use?"
    )
    return Finding("the examination", f"the last run: {_short(question.words)}", got, expected, cause)


def paper(which: Exercise) -> list[tuple[Question, Any]]:
    """The questions, and what is right. Drawn once by each process that grades: all its answers are asked the same."""
    with _drawing:
        if which.id not in _papers:
            questions = drawn(which.number, random.Random())
            _papers[which.id] = list(zip(questions, _with_minidls_own(questions), strict=True))
        return _papers[which.id]


def _with_minidls_own(questions: list[Question]) -> list[Any]:
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=([each.asked for each in questions], theirs))
    with starts_or_ends:
        process.start()
    theirs.close()
    try:
        return list(ours.recv())
    finally:
        with starts_or_ends:
            process.join()


def _run(questions: list[dict[str, Any]], connection: Any) -> None:
    """In a process of its own."""
    from notebooks.exercises import exam_programs

    multiprocessing.set_start_method("fork", force=True)
    found = [exam_programs.run(each, SimpleNamespace(names={})) for each in questions]
    connection.send(json.loads(json.dumps(found)))
