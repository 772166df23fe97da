"""`merge(output, traces)`: one trace of what the processes of a run wrote on several hosts.

Each host has a CLOCK_MONOTONIC of its own. Each trace says what that and the time of day were at the same moment, when
it began and when it stopped; and the times of day of different hosts agree, as well as NTP sees to it.

Legend
    base          wall_clock - monotonic, of one host (ns): when its clock of events was 0, as a time of day
    offset        base, less the first host's: added to an event's time it gives the time on the first host's clock (ns)
    uncertainty   how far off that may be (ns); None where a host's time of day is kept by nobody
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracing.recording import file_format as fmt
from tracing.recording import trace_directory
from tracing.trace.file_reader import TraceError
from tracing.trace.parts import Part, parts


def merge(output: Path, traces: Sequence[Path]) -> Path:
    """Copy every part of `traces` into the new trace `output`; return where it is (as `tracing.record`: a trace that is
    being recorded into is left alone). Raises TraceError: one of them is no trace, or does not tell its clocks."""
    found = [part for path in traces for part in parts(path)]
    for part in found:
        if "monotonic" not in part.about:
            raise TraceError("not a trace, or one of an older version, which does not tell its clocks", part.path)
    clocks = {host: _clock([part.about for part in found if _host(part) == host]) for host in map(_host, found)}
    first = clocks[_host(found[0])]
    with trace_directory.claimed(output.absolute()) as directory:
        trace_directory.describe(directory, pid=None, stopped=0)
        run = fmt.description(directory)["run"]
        for part in found:
            own = clocks[_host(part)]
            offset, uncertainty = (0, 0) if own is first else _apart(own, first)
            _copy(part, directory, {"part_of": run, "offset": offset, "uncertainty": uncertainty})
    return directory


def _host(part: Part) -> str:
    """Parts with the same one have one clock. (`machine` names a boot of a host, and a container on it.)"""
    return str(part.about.get("machine", part.about.get("host"))).partition("/")[0]


Clock = tuple[int, int, int | None]  # base, by how much that changed while recording, NTP's bound (ns)


def _clock(abouts: list[dict[str, Any]]) -> Clock:
    moments = [
        about[when] if when else about for about in abouts for when in ("", "at_stop") if not when or when in about
    ]
    bases = [moment["wall_clock"] - moment["monotonic"] for moment in moments]
    errors = [moment["clock_error"] for moment in moments if moment.get("clock_error") is not None]
    kept_right = len(errors) == len(moments)
    return (min(bases) + max(bases)) // 2, max(bases) - min(bases), max(errors) if kept_right else None


def _apart(own: Clock, first: Clock) -> tuple[int, int | None]:
    offset = own[0] - first[0]
    if own[2] is None or first[2] is None:
        return offset, None
    return offset, (own[1] + first[1]) // 2 + own[2] + first[2]


def _copy(part: Part, directory: Path, entries: dict[str, Any]) -> None:
    names = [part.path.name if part.path.parent.name == "parts" else str(part.about["pid"])]
    folder = fmt.parts_directory(directory)
    while (folder / names[-1]).exists():  # another host's process with that pid
        names.append(f"{names[0]}-{len(names) + 1}")
    target = folder / names[-1]
    target.mkdir(parents=True)
    for path in fmt.files_of(part.path):
        shutil.copyfile(path, target / path.name)
    trace_directory.update(target, **entries)
