"""What trace.json says of the process that records: its rank, its host, and both clocks at one moment.

Legend
    rank         1                        in torch.distributed: of all processes of the training; null outside of it
    local_rank   1                        of those on this host
    restart      0                        how many times torchrun has begun anew
    machine      "6f… time:[4026531834]/pid:[4026531836]"
                                          what CLOCK_MONOTONIC is valid in, and pids: a boot of a host, and a container
    wall_clock   1764000000000000000      ns since 1970
    monotonic    52000000000              ns, the events' clock, at the same moment
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

# The process that RANK is the rank of: those that it starts inherit the variable, but are others.
RANKED = "TRACING_RANKED"
RANKS = ("rank", "local_rank", "world_size", "restart")
_inherited_group: Any = None  # of torch.distributed, as it was when this process was forked


def header(loader: dict[str, Any] | None = None) -> dict[str, Any]:
    """All of it, as of now. `loader` is the configuration of a loader that this process iterates, if it is known: its
    sampler has a rank, too."""
    monotonic, wall_clock = time.monotonic_ns(), time.time_ns()
    return {
        **_ranks(loader or {}),
        "host": platform.node(),
        "machine": machine(),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "wall_clock": wall_clock,
        "monotonic": monotonic,
    }


def machine() -> str:
    """Processes with the same one have their pids and CLOCK_MONOTONIC in common."""
    found = [platform.node()]
    with contextlib.suppress(OSError):
        found[0] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        found.append(os.readlink("/proc/self/ns/pid"))
        found[0] += f" {os.readlink('/proc/self/ns/time')}"  # a container may have a clock of its own, since Linux 5.6
    return "/".join(found)


def launch() -> str | None:
    """What started this process as one rank of several: the same for all of them on this host, and for those of a
    restart. None: nothing did, or it is a rank's child."""
    if "WORLD_SIZE" not in os.environ or header()["rank"] is None:
        return None
    # torchrun may change the port at a restart, and has a name for itself; of a shell's launches the port differs.
    key = os.environ.get("TORCHELASTIC_RUN_ID") or os.environ.get("MASTER_PORT", "")
    return "/".join([platform.node(), str(os.getppid()), os.environ.get("MASTER_ADDR", ""), key])


def _ranks(loader: dict[str, Any]) -> dict[str, int | None]:
    env = {name: _int(os.environ.get(name)) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    rank, world_size = env["RANK"], env["WORLD_SIZE"]
    ranked_by = _int(os.environ.get(RANKED))
    own = ranked_by in (None, os.getpid())
    group = _group()
    if group is not None and group is not _inherited_group:
        import torch.distributed

        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    elif not own:
        rank = world_size = env["LOCAL_RANK"] = None
    elif rank is None and (loader.get("sampler_replicas") or 1) > 1:
        rank, world_size = loader["sampler_rank"], loader["sampler_replicas"]
    if rank is not None and ranked_by is None:
        os.environ[RANKED] = str(os.getpid())
    restart = _int(os.environ.get("TORCHELASTIC_RESTART_COUNT")) if rank is not None else None
    return {"rank": rank, "local_rank": env["LOCAL_RANK"], "world_size": world_size, "restart": restart}


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _group() -> Any:
    """torch.distributed's default group; None if there is none."""
    distributed = sys.modules.get("torch.distributed")
    return distributed.group.WORLD if distributed is not None and distributed.is_available() else None


def _after_fork_in_child() -> None:
    global _inherited_group
    _inherited_group = _group()


os.register_at_fork(after_in_child=_after_fork_in_child)
