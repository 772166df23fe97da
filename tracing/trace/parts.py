"""The parts of a run: a program of several processes that iterate loaders writes one trace for each of them.

    traces/train/                    the process that was run; it may have no loader, as under torchrun
    traces/train/parts/rank0-4711/   a process that it started: a whole trace, as in the folder above
    traces/train/parts/rank1-4712/

`tracing.load()` reads one part. What only all of them together show is in tracing/ranks/.

Legend
    part     Part(path=…/rank1-4712)   one process that iterates loaders, and its workers
    rank     1                         its number in torch.distributed; None if it has none
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tracing.recording import file_format as fmt


class Part:
    """One trace of a run. Its description says which process wrote it: rank, world_size, host, pid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about: dict[str, Any] = fmt.description(path)  # trace.json; {} if that is damaged
        rank = self.about.get("rank")
        self.rank = rank if isinstance(rank, int) else None  # torch.distributed's; None outside of it
        # "rank 1", or "process 4711".
        self.name = f"process {self.about.get('pid')}" if self.rank is None else f"rank {self.rank}"


def parts(path: str | os.PathLike[str]) -> list[Part]:
    """The parts of the run in `path` that recorded anything: by rank, then by when they began. If none did, the
    ranks. A trace of one process is its own only part, even if it is empty."""
    root = Part(Path(path))  # of the process that was run
    every = [root, *(Part(each) for each in sorted((root.path / fmt.PARTS).glob("*")) if fmt.is_trace(each))]
    recorded = [part for part in every if fmt.has_events(part.path)]
    found = recorded or [part for part in every if part.rank is not None]
    found.sort(key=lambda part: (part.rank is None, part.rank or 0, part.about.get("wall_clock") or 0))
    return found or [root]


def choose(path: str | os.PathLike[str], part: int | str | None = None) -> Part:
    """The part of the run in `path` with this rank, or this name or folder's name; None: the first. LookupError: there
    is none."""
    found = parts(path)
    for each in found:
        if part is None or str(part) in (each.name.removeprefix("rank "), each.name, each.path.name):
            return each
    raise LookupError(f"{os.fspath(path)}: no part {part!r}: there are {', '.join(each.name for each in found)}")
