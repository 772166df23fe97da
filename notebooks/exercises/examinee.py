"""The process in which an answer is examined: it has torch and a minidl without the functions that are asked for, and
nothing of the grader. It is told which programs to run, and sends back what they return, as JSON.

    examination.py -> server (this file, alone in a folder) -> keeper -> the answer's process

The server starts with what the answers' processes need and never imports minidl. This file must import nothing of this
package but keeper.py, which lies beside it then.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import io
import json
import multiprocessing
import os
import shutil
import socket
import sys
import types
from pathlib import Path
from typing import Any

ORDER = 1 << 16  # bytes at most of what the server is told
PRELOADED = ("torch.utils.data.distributed", "numpy", "greenlet", "psutil", "keeper", "multiprocessing.connection")


def serve(server: socket.socket) -> None:
    """Fork a process for each order, until the grader is gone."""
    sys.path[:] = json.loads(server.recv(ORDER))
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # greenlet is only for the simulated world
            importlib.import_module(name)
    here = sys.path.pop(0)
    shutil.rmtree(here, ignore_errors=True)  # nobody else needs it, and nobody may be here later to remove it
    sys.argv[1:] = []
    # What an editable installation has added knows where the repository is.
    sys.meta_path[:] = [each for each in sys.meta_path if getattr(each, "__module__", "").startswith("_frozen")]
    for name in [each for each in sys.modules if each.startswith("__editable__")]:
        del sys.modules[name]
    # A Python of the same environment would find the grader; the one that the environment was made from does not.
    sys.executable = getattr(sys, "_base_executable", "")
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError):  # if the grader has died
        server.sendall(b"!")
    while True:
        try:
            text, descriptors, _, _ = socket.recv_fds(server, ORDER, 3)
        except ConnectionError:
            return
        if not text:
            return
        if os.fork() == 0:
            server.close()
            _keep(json.loads(text), *descriptors)
        for each in descriptors:
            os.close(each)
        with contextlib.suppress(ChildProcessError):  # those that have ended meanwhile
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _keep(order: dict[str, Any], control: int, talk: int, said: int) -> None:
    keep = importlib.import_module("keeper").keep
    with contextlib.suppress(OSError):  # the grader has died
        os.write(control, json.dumps({"pid": os.getpid()}).encode() + b"\n")
        keep(control, _work, order, control, socket.socket(fileno=talk), os.fdopen(said, "ab"))
    os._exit(0)


def _work(order: dict[str, Any], control: int, talk: socket.socket, said: Any) -> None:
    os.close(control)
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), line_buffering=True)
    os.chdir(order["folder"])
    sys.path.insert(0, order["folder"])
    multiprocessing.set_start_method("fork", force=True)  # the learner's functions are in the workers, too
    for reference in order["torchs"]:
        owner, name = _owner(reference)
        setattr(owner, name, _missing)
    programs = importlib.import_module("exam.exam_programs")
    lines = talk.makefile("rw", encoding="utf-8")
    answer, failed = None, ""
    try:
        answer = _read(order)
    except Exception as error:
        failed = f"raised {type(error).__name__}: {error}"
    for line in lines:
        value = failed or programs.run(json.loads(line), answer)
        print(json.dumps({"value": value}), file=lines, flush=True)


def _missing(*_: Any, **__: Any) -> Any:
    """In place of what torch has of an exercise."""
    raise NotImplementedError


def _owner(reference: str) -> tuple[Any, str]:
    """The class or module that has a function, and its name there."""
    module, _, path = reference.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    return owner, name


def _read(order: dict[str, Any]) -> Any:
    """Execute the answer, and put its functions in the place of those that minidl lacks."""
    path = Path(order["folder"], order["file"])
    module: Any = types.ModuleType("answer")
    module.__file__ = str(path)
    sys.modules["answer"] = module  # where dataclasses and pickle look for it
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))
    for reference in order["references"]:
        owner, name = _owner(reference)
        if isinstance(owner, type):
            for each, value in vars(getattr(module, owner.__name__)).items():
                if each == name or not hasattr(owner, each):  # and the answer's own methods
                    setattr(owner, each, value)
            continue
        old = inspect.getattr_static(owner, name)
        for each in [each for known, each in sys.modules.items() if known.startswith(("minidl.", "exam."))]:
            for here in [here for here, value in vars(each).items() if value is old]:
                setattr(each, here, getattr(module, name))
    return types.SimpleNamespace(names=vars(module))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
