"""The cost of watching a run live: the share of a core that `python -m tracing live` takes beside a busy loader."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import psutil

import minidl
import tracing
from tests.benchmarks.recording import EVENTS_PER_BATCH, Numbers
from tests.tracing.cli.terminal import in_terminal, read_all, read_until

EVENTS_PER_SECOND = 10_000
WIDTH, HEIGHT = 120, 40


@dataclass(frozen=True)
class Watched:
    """What watching a run took."""

    share: float  # of a core, 0 to 1
    events_per_second: float
    events: int  # of the trace in the end


def emit_steadily(directory: Path) -> None:
    """Load until killed, with a training step that waits for the clock: about EVENTS_PER_SECOND."""
    period = EVENTS_PER_BATCH / EVENTS_PER_SECOND
    with tracing.record(directory):
        batches = iter(minidl.DataLoader(Numbers(), batch_size=None, num_workers=2))
        begin = time.perf_counter()
        for number in itertools.count(1):
            next(batches)
            time.sleep(max(0.0, begin + number * period - time.perf_counter()))


def watch(directory: Path, seconds: float) -> Watched:
    """Watch such a run for `seconds`, once the first frame is shown."""
    run = get_context("spawn").Process(target=emit_steadily, args=(directory,))
    run.start()
    try:
        while not (any(directory.glob("events-*-*.bin")) and len(tracing.load(directory)) > EVENTS_PER_SECOND / 10):
            assert run.is_alive(), "the run ended before it could be watched"
            time.sleep(0.05)  # its workers are starting
        share = share_of_a_core(directory, seconds)
    finally:
        run.kill()
        run.join()
    trace = tracing.load(directory)
    return Watched(share, len(trace) / (trace.duration / 1e9), len(trace))


def share_of_a_core(directory: Path, seconds: float) -> float:
    """The share that the live view takes, in its own terminal."""
    command = ["python", "-m", "tracing", "live", str(directory)]
    with in_terminal(command, directory.parent, WIDTH, HEIGHT) as (view, terminal):
        read_until(terminal, lambda shown: b"index_queue" in shown)
        reader = threading.Thread(target=read_all, args=(terminal,))
        reader.start()  # or the view would wait for the terminal
        before, begin = cpu_seconds(view.pid), time.perf_counter()
        time.sleep(seconds)
        share = (cpu_seconds(view.pid) - before) / (time.perf_counter() - begin)
        view.kill()
        reader.join()
    return share


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
