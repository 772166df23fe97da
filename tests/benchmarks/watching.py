"""The cost of watching a run live: the share of a core that `python -m tracing live` takes beside a busy loader."""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import minidl
import tracing
from tests.benchmarks.recording import EVENTS_PER_BATCH, Numbers

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
    with tracing.record(directory, capacity=4_000_000):
        batches = iter(minidl.DataLoader(Numbers(), batch_size=None, num_workers=2))
        begin = time.perf_counter()
        for number in itertools.count(1):
            next(batches)
            time.sleep(max(0.0, begin + number * period - time.perf_counter()))


def watch(directory: Path, seconds: float, after: float = 0.0) -> Watched:
    """Watch such a run for `seconds`, `after` seconds after its start and once the first frame is shown."""
    run = get_context("spawn").Process(target=emit_steadily, args=(directory,))
    run.start()
    try:
        while not (any(directory.glob("events-*-*.bin")) and len(tracing.load(directory)) > EVENTS_PER_SECOND / 10):
            assert run.is_alive(), "the run ended before it could be watched"
            time.sleep(0.05)  # its workers are starting
        time.sleep(after)
        share = _share_of_a_core(directory, seconds)
    finally:
        run.kill()
        run.join()
    trace = tracing.load(directory)
    return Watched(share, len(trace) / (trace.duration / 1e9), len(trace))


def _share_of_a_core(directory: Path, seconds: float) -> float:
    """The share that the live view takes, in its own terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "tracing", "live", str(directory)]
    view = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    shown = threading.Event()
    reader = threading.Thread(target=_read, args=(master, shown), daemon=True)
    reader.start()  # or the view would wait for the terminal
    try:
        assert shown.wait(60), "the live view shows nothing"
        clock = _cpu_clock(view.pid)
        before, begin = time.clock_gettime(clock), time.perf_counter()
        time.sleep(seconds)
        return (time.clock_gettime(clock) - before) / (time.perf_counter() - begin)
    finally:
        view.kill()
        view.wait()
        reader.join()
        os.close(master)


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, in nanoseconds. (The ticks in /proc, 10 ms, are longer than a frame takes.)"""
    clock = ctypes.c_int()  # a clockid_t
    failed = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if failed:
        raise OSError(failed, os.strerror(failed))
    return clock.value


def _read(master: int, shown: threading.Event) -> None:
    """Read all output; set `shown` once it has a whole frame."""
    text = b""
    try:
        while data := os.read(master, 1 << 16):
            text = text[-4096:] + data
            if b"index_queue" in text:
                shown.set()
    except OSError:  # the view has ended
        pass
