"""What only Linux can be asked: /proc, and which cores are ours. Each function says what it returns elsewhere, and what
that costs."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

from tracing.recording.system_calls import open_above

_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")  # ns


def cpus() -> int | None:
    """Of those that this process may use, in a container at most its share of their time. Elsewhere of the whole
    machine: a report may take some for idle."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with contextlib.suppress(OSError, ValueError):  # "max 100000": no limit
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text().split())
        found = min(found or 1, -(-quota // period))
    return found


def machine() -> str:
    """Processes with the same one have their pids and CLOCK_MONOTONIC in common. Elsewhere only the host's name: after
    a restart an old trace may seem to be recorded still."""
    found = [platform.node()]
    with contextlib.suppress(OSError):
        found[0] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        found.append(os.readlink("/proc/self/ns/pid"))
        found[0] += f" {os.readlink('/proc/self/ns/time')}"  # a container may have a clock of its own, since Linux 5.6
    return "/".join(found)


def state_of(pid: int) -> str:
    """Its letter in ps, as T for stopped. Elsewhere "": a stopped process passes for a living one, as does a zombie."""
    with contextlib.suppress(OSError, IndexError):
        # "12 (name) S 1 ...": the name may hold spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    return ""


def memory(pid: int, counted: str = "Pss") -> int:
    """Bytes of it, of these kinds (smaps(5), with | in between): in Pss, what several processes have mapped is shared
    out. Elsewhere 0: `run --try` shows none, and no report says that memory grows."""
    with contextlib.suppress(OSError, ValueError), open(open_above(f"/proc/{pid}/smaps_rollup")) as file:
        return sum(1024 * int(line.split()[1]) for line in file if line.partition(":")[0] in counted.split("|"))
    return 0


def bytes_read() -> int:
    """Bytes that this process has read so far, from files and pipes. Elsewhere 0: no report says that it reads too
    much."""
    with contextlib.suppress(OSError, ValueError), open(open_above("/proc/self/io"), "rb") as file:
        return int(file.readline().split()[1])
    return 0


def cores() -> tuple[int, int]:
    """Of all cores together since the machine started (ns): busy, or taken by other machines on the same host; idle.
    Elsewhere -1: that other programs took the cores is not noticed."""
    with contextlib.suppress(OSError, ValueError), open(open_above("/proc/stat"), "rb") as file:
        ticks = [int(each) * _TICK for each in file.readline().split()[1:]]
        user, nice, system, idle, waits, irq, softirq, steal = ticks[:8]
        return user + nice + system + irq + softirq + steal, idle + waits
    return -1, -1
