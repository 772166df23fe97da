"""Samples the memory of a process and its children beside a recording, until the process ends or asks it to stop.

    python memory_sampler.py FILE PID        SIGTERM stops it

A separate process: a thread in main would be there at every fork, and would want Python's lock. It is run as a script
and imports only the standard library, so that it starts within milliseconds. tracing.trace.memory reads what it writes.

Legend
    rss       312_000_000   resident memory (bytes), including what is shared with others
    pss       180_000_000   proportional: each of n processes that share a page is charged one n-th of it
    private    95_000_000   pages that no other process has: what it would free if it ended
    mappings  1290          the process's memory mappings, which the system limits. Shared ones are of shared memory:
                            each tensor that came from a worker is one
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

# time (ns, the clock of the events), pid, rss, pss, private, open files, mappings, shared mappings, and how many open
# files and mappings it may have; -1: unknown
SAMPLE = struct.Struct("<10q")
PERIOD = 0.1  # seconds between two samples of all processes, or more:
COST = 10  # times the CPU time that a sample costs, so that watching takes at most a tenth of a core
PATIENCE = 5.0  # seconds in which it must take its last sample
STOP = {signal.SIGTERM}
SHARED = (b"/torch_", b"/memfd:torch", b"/dev/shm/")  # what the names of torch's shared memory begin with or contain


class MemorySampler:
    """Starts the process that samples this one, and stops it."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-I", "-S", __file__, str(file), str(os.getpid())]
        none = subprocess.DEVNULL
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)  # which it inherits
        try:  # in a session of its own: Ctrl-C is for the program
            self._process = subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        """Stop it, and wait for its last sample. Can be called twice."""
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{thread}/children") as file:
                    found += map(int, file.read().split())
    return [each for each in found if each != os.getpid()]


def sample(pid: int) -> tuple[int, ...]:
    """All that SAMPLE holds. Raises OSError: the process is gone, or is another user's."""
    with open(f"/proc/{pid}/maps", "rb") as maps:
        mapped = maps.read()
    files, now = len(os.listdir(f"/proc/{pid}/fd")), time.monotonic_ns()
    # The sizes last: of a process that is exiting the others are merely empty, and this raises.
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        lines = rollup.readlines()
    sizes: dict[str, int] = {}
    for line in lines:
        name, _, rest = line.partition(":")
        if rest.endswith("kB\n"):
            sizes[name] = int(rest.split()[0]) * 1024
    mappings = mapped.splitlines()
    shared = sum(any(name in mapping for name in SHARED) for mapping in mappings)
    private = sizes.get("Private_Clean", 0) + sizes.get("Private_Dirty", 0)
    rss, pss = sizes.get("Rss", -1), sizes.get("Pss", -1)
    return now, pid, rss, pss, private, files, len(mappings), shared, *limits(pid)


def limits(pid: int) -> tuple[int, int]:
    """How many open files and mappings a process may have. (It may change the first.)"""
    files = mappings = -1
    with open(f"/proc/{pid}/limits") as file:
        for line in file:
            if line.startswith("Max open files") and (soft := line.split()[3]).isdigit():
                files = int(soft)
    with contextlib.suppress(OSError), open("/proc/sys/vm/max_map_count") as file:
        mappings = int(file.read())
    return files, mappings


def is_over(pid: int) -> bool:
    """Whether the process has ended; a zombie has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def watch(path: str, main: int) -> None:
    """Sample until SIGTERM comes, which is blocked, or main has ended. A last sample is taken when it stops."""
    with open(path, "ab", buffering=0) as file:
        stopped = last = False
        while not last and not is_over(main):
            begin, last = time.process_time(), stopped
            for pid in family(main):
                with contextlib.suppress(OSError):
                    file.write(SAMPLE.pack(*sample(pid)))  # one write: never half a sample, unless the disk is full
            cost = time.process_time() - begin
            wait = 0 if last else max(PERIOD, COST * cost)
            stopped = signal.sigtimedwait(STOP, wait) is not None


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]))
