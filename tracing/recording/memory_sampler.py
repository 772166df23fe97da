"""Beside a recording: samples the memory of a process and its children, until it ends or says so.

    python memory_sampler.py FILE PID        it is told on its standard input when the recording stops

A process of its own: a thread in main would be there at every fork, and would want Python's lock. It is run as a script
and imports nothing but the standard library, so that it is there within milliseconds. What it writes is read by
tracing.trace.memory.

Legend
    rss       312_000_000   resident memory (bytes): also what is shared with others
    pss       180_000_000   proportional: of pages that n processes share, each is told one n-th
    private    95_000_000   of pages that no other process has: what it would free if it ended
    mappings  1290          the process's memory mappings, of which the system allows so many; shared: those of
                            shared memory, as each tensor is that came from a worker
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

# time (ns, the clock of the events), pid, rss, pss, private, open files, mappings, shared mappings, and how many open
# files and mappings it may have; -1: not known
SAMPLE = struct.Struct("<10q")
PERIOD = 0.1  # seconds between two samples of all processes, or more:
COST = 10  # times the CPU time that taking one takes, so that watching costs at most a tenth of a core
PATIENCE = 5.0  # seconds for it to take its last sample
SHARED = (b"/torch_", b"/memfd:torch", b"/dev/shm/")  # what the names of torch's shared memory begin with or contain


class Sampler:
    """Starts the process that samples this one, and stops it."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-I", "-S", __file__, str(file), str(os.getpid())]
        # In a session of its own: Ctrl-C is for the program.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def stop(self) -> None:
        """Wait for its last sample. Can be called twice."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a word, not only the pipe's end: forked workers hold copies of it
            self._process.stdin.write(b"\n")
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def family(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{thread}/children") as file:
                    found += map(int, file.read().split())
    return [each for each in found if each != os.getpid()]


def sample(pid: int) -> tuple[int, ...]:
    """All that SAMPLE holds. Raises OSError: there is no such process any more, or it is another user's."""
    with open(f"/proc/{pid}/maps", "rb") as maps:
        mapped = maps.read()
    files, now = len(os.listdir(f"/proc/{pid}/fd")), time.monotonic_ns()
    # The sizes last: of a process on its way out the others are merely empty, and this raises.
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
    """How many open files and mappings a process may have. (The first it may change.)"""
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
    """Sample until standard input says something, or main has ended. (That is no end of the pipe: workers that were
    forked hold copies of its other end.) A last sample is taken when it stops."""
    with open(path, "ab", buffering=0) as file:
        stopped = last = False
        while not last and not is_over(main):
            begin, last = time.process_time(), stopped
            for pid in family(main):
                with contextlib.suppress(OSError):
                    file.write(SAMPLE.pack(*sample(pid)))  # one write: never half a sample, unless the disk is full
            cost = time.process_time() - begin
            wait = 0 if last else max(PERIOD, COST * cost)
            stopped = bool(select.select([sys.stdin], [], [], wait)[0])


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]))
