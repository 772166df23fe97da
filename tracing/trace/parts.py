"""The parts of a run: a program of several processes that iterate loaders writes one trace for each of them.

    traces/train/                    the process that was run; it may have no loader, as under torchrun
    traces/train/parts/rank0-4711/   a process that it started: a whole trace, as in the folder above
    traces/train/parts/rank1-4712/

`tracing.load()` reads one part. What only all of them together show is in the views of ranks.

Legend
    part     Part(path=…/rank1-4712)   one process that iterates loaders, and its workers
    rank     1                         its number in torch.distributed; None if it has none
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tracing.recording import file_format as fmt
from tracing.trace.words import duration


@dataclass(frozen=True)
class Part:
    """One trace of a run. Its description says which process wrote it: rank, local_rank, world_size, host, pid."""

    path: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        """trace.json; {} if that is damaged."""
        return fmt.description(self.path)

    @property
    def rank(self) -> int | None:
        """torch.distributed's; None outside of it."""
        found = self.about.get("rank")
        return found if isinstance(found, int) else None

    @property
    def name(self) -> str:
        """ "rank 1", or "process 4711"."""
        return f"process {self.about.get('pid')}" if self.rank is None else f"rank {self.rank}"

    @property
    def offset(self) -> int:
        """Added to its times, it puts them on the first host's clock (ns); 0 unless `tracing merge` found another."""
        return int(self.about.get("offset") or 0)

    @property
    def uncertainty(self) -> int | None:
        """How far off the offset may be (ns); None: unknown, since nobody keeps one of the hosts' clocks right."""
        found = self.about.get("uncertainty", 0)
        return found if isinstance(found, int) else None

    @property
    def recorded(self) -> bool:
        """Whether it has events."""
        return fmt.has_events(self.path)


def parts(path: str | os.PathLike[str]) -> list[Part]:
    """The parts of the run in `path` that recorded anything: by rank, then by when they began. If torchrun began anew,
    only those of its last attempt. If none did, the ranks. A trace of one process is its own only part, even if it is
    empty."""
    every = _every_part(path)
    return _last_attempt([part for part in every if part.recorded]) or _ranks(every) or every[:1]


def ranks_without_events(path: str | os.PathLike[str]) -> list[Part]:
    """The ranks that are none of these, because they have recorded nothing."""
    found = parts(path)
    return [part for part in _ranks(_every_part(path)) if part not in found and not part.recorded]


def _every_part(path: str | os.PathLike[str]) -> list[Part]:
    """The process that was run is the first."""
    root = Part(Path(path))
    return [root, *(Part(each) for each in sorted(fmt.parts_directory(root.path).glob("*")) if fmt.is_trace(each))]


def _ranks(every: list[Part]) -> list[Part]:
    return _last_attempt([part for part in every if part.rank is not None])


def _last_attempt(found: list[Part]) -> list[Part]:
    attempt = max((part.about.get("restart") or 0 for part in found), default=0)
    return sorted((part for part in found if part.about.get("restart") in (attempt, None)), key=_order)


def _order(part: Part) -> tuple[bool, int, int]:
    return part.rank is None, part.rank or 0, part.about.get("wall_clock") or 0


def choose(path: str | os.PathLike[str], part: int | str | None = None) -> Part:
    """The part of the run in `path` with this rank, or this name or folder's name; None: the first. LookupError: there
    is none."""
    found = parts(path)
    if part is None:
        return found[0]
    for each in found:
        if part in (each.rank, each.name, each.path.name):
            return each
    raise LookupError(f"{os.fspath(path)}: there is no part {part!r}, but {', '.join(each.name for each in found)}")


def clock_notes(found: list[Part]) -> list[str]:
    """Of parts of several hosts: how their clocks are apart, a sentence for each host but the first."""
    hosts = {part.about.get("host"): part for part in found if part.offset}
    notes = []
    for host, part in hosts.items():
        known = "unknown: its clock or the first host's is not synchronised" if part.uncertainty is None else ""
        notes.append(
            f"Times of host {host} are {part.offset / 1e9:+.6f} s from its clock to the first host's; "
            f"uncertainty {known or duration(part.uncertainty or 0)}."
        )
    return notes
