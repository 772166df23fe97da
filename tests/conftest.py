"""What every test is held to: it leaves no process behind."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import psutil
import pytest

HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")  # they live as long as pytest does
PATIENCE = 5.0  # seconds for a process that is on its way out


def children() -> list[psutil.Process]:
    """The living processes below this one, without multiprocessing's own helpers. Zombies do not count: whoever
    started them is about to reap them."""
    return [process for process in psutil.Process().children(recursive=True) if not is_over(process)]


def is_over(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
        helper = any(name in command for name in HELPERS) and "spawn_main" not in command
        # A worker of the forkserver is forked from it, and has the same command line: it is the helper's child.
        parent = process.parent()
        forked = parent is not None and any(name in " ".join(parent.cmdline()) for name in HELPERS)
        return process.status() == psutil.STATUS_ZOMBIE or (helper and not forked)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    """No child process outlives the test that started it, whether the test passes or not."""
    before = set(children())
    yield
    left = [process for process in children() if process not in before]
    if left:
        gc.collect()  # an iterator in a reference cycle (a traceback's frame, say) lives until now
        _, left = psutil.wait_procs(left, timeout=PATIENCE)
    # The loader's own handler would raise here, and so in pytest.
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=PATIENCE)
    signal.signal(signal.SIGCHLD, handler)
    assert not left, f"left behind: {left}"
