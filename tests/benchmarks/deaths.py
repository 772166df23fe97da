"""How long after a worker's death the loader raises: kill -9 at random moments of a running load."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
from types import ModuleType
from typing import Any

from tests.samples import Samples, napping


def seconds_to_notice(package: ModuleType, kills: int, on_main_thread: bool = True) -> list[float]:
    """Seconds from the kill of one of two workers to the RuntimeError in the thread that iterates, for each kill."""
    moments = random.Random(7)
    taken: list[float] = []
    for _ in range(kills):
        run = [package, 0.02 + 0.05 * moments.random(), taken]
        if on_main_thread:
            _kill_one(*run)
        else:
            thread = threading.Thread(target=_kill_one, args=run)
            thread.start()
            thread.join()
    return taken


def _kill_one(package: ModuleType, after: float, taken: list[float]) -> None:
    iterator: Any = iter(package.DataLoader(Samples(1 << 30, napping(0.005)), batch_size=None, num_workers=2))
    next(iterator)
    killed_at = []

    def kill() -> None:
        time.sleep(after)
        killed_at.append(time.perf_counter())
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for _ in itertools.repeat(None):
            next(iterator)
    except RuntimeError:
        raised_at = time.perf_counter()
    killer.join()
    taken.append(raised_at - killed_at[0])
