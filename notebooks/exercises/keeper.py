"""The process that keeps an answer: it starts the answer's own process, adopts whatever that leaves behind, daemons
included, and ends it all when the answer has ended, when the grader says so (SIGTERM), or when the grader has died.

    forkserver -> keeper -> the answer's process -> what the answer starts
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
LOOK = 0.05  # seconds between two looks
ENDING = 5.0  # seconds, at most


def keep(grader: int, work: Callable[..., Any], *args: Any) -> int:
    """Run work(*args) in a process of its own until it ends, or `grader` is readable: what has died is at the other
    end. Its exit code, as `multiprocessing` has it."""
    os.setsid()  # Ctrl-C is the grader's affair
    if sys.platform == "linux":  # elsewhere a daemon of the answer survives it
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _told_to_end)
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(work, *args))
    process.start()
    for each in args:
        if hasattr(each, "fileno"):
            each.close()  # so that the grader's end closes with the answer's process
    while process.exitcode is None and not wait([grader], LOOK):
        pass
    _end_all()
    return process.exitcode or 0


def _answer(work: Callable[..., Any], *args: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":  # it may kill its keeper
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    work(*args)


def _told_to_end(*_: Any) -> None:
    _end_all()
    os._exit(0)


def _end_all() -> None:
    """Until there is nobody left: one that is killed may have started another meanwhile."""
    deadline = time.monotonic() + ENDING
    while time.monotonic() < deadline:
        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                each.kill()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)
