"""Writes a run of the simulated world as a trace: the same files that a recorder writes, so every view can read them.

A process that ended by itself has closed its file; one that was killed or never ended has not. In a deadlock time
stands still, which the trace shows as a recording that was stopped much later.
"""

from __future__ import annotations

import itertools
import json
import struct
from pathlib import Path
from typing import Any

from minidl.events import Kind
from minidl.world.simulated import Outcome, simulate
from minidl.world.simulated.faults import Fault
from tracing.recording import file_format as fmt
from tracing.recording.event_writer import render
from tracing.recording.loader_text import configuration

FOR_EVER = 3_600_000_000_000  # ns


def write(outcome: Outcome, directory: Path, replaced: dict[str, Any] | None = None) -> None:
    """Write the trace of a run into `directory`, an empty folder: the same bytes for the same run.
    `replaced` describes functions that were at work in place of minidl's: "file" and "text" that they are in,
    "functions" (qualified names), and the first event that minidl's own would not have emitted: "departs", -1 if there
    is none, and "instead", what they emitted there.

    The run is repeated, for the events' texts. RuntimeError: it does not do the same again, or an event has something
    other than numbers where they belong."""

    started = {"start_method": outcome.options["start_method"]}  # the simulated world's, not this system's

    def as_json(kind: int, text: object) -> str:
        return render(configuration(text) | started if kind == Kind.LOADER else text)

    repeated = simulate(outcome.program, schedule=outcome.token, texts=as_json, **outcome.options)
    for k, (then, now) in enumerate(itertools.zip_longest(outcome.events, repeated.events, fillvalue=())):
        if then[:8] != now[:8]:
            what = f"event {k} was {then[:8]} and is {now[:8]} now"
            hint = "what does it take from the clock, from chance, or from a run before?"
            raise RuntimeError(f"the run cannot be repeated, {what}: {hint}")
    last = repeated.events[-1][0] if repeated.events else 0
    about: dict[str, Any] = {
        "format": fmt.VERSION,
        "recorded_by": "minidl's simulated world",
        "schedule": outcome.token,
        "pid": repeated.threads[0][0],
        "cpus": outcome.options["cpus"],
        "stopped": last + FOR_EVER if repeated.deadlock else last,
        "killed": _killed(repeated),
        "replaced": replaced,
    }
    if repeated.deadlock or repeated.endless:  # a reader would ask the operating system for the processes' status
        about["processes"] = {pid: "closed" if code is None else "gone" for pid, code in repeated.exitcodes.items()}
    (directory / fmt.DESCRIPTION).write_text(json.dumps(about, indent=1), encoding="utf-8")
    for pid in {repeated.threads[event[1]][0] for event in repeated.events}:
        _write_process(repeated, pid, directory)


def _killed(outcome: Outcome) -> dict[str, int]:
    """pid -> time (ns) of each process that the schedule killed: no event records that."""
    pids = list(outcome.parents)
    killed = {pids[move.number] for move in outcome.schedule.moves if move.what is Fault.KILL}
    return {str(pid): round(outcome.ended[pid] * 1e9) for pid in sorted(killed) if pid in outcome.ended}


def _write_process(outcome: Outcome, pid: int, directory: Path) -> None:
    """The pair of files of a process that has emitted something."""
    events = [event for event in outcome.events if outcome.threads[event[1]][0] == pid]
    actors: dict[int, int] = {}  # thread's number -> its actor's number in this file
    records, texts = [], []
    for time, thread, kind, epoch_id, task, worker, queue, value, text in events:
        if thread not in actors:
            actors[thread] = len(actors)
            texts.append(json.dumps({"actor": actors[thread], "name": outcome.threads[thread][1]}))
        where = 0
        if text:
            texts.append(f"[{len(texts)}, {text}]")
            where = len(texts)
        try:
            records.append(fmt.RECORD.pack(time, epoch_id, value, where, task, actors[thread], worker, queue, kind))
        except struct.error as error:
            numbers = {"task": task, "worker": worker, "queue": queue, "value": value}
            what = f"{kind!r} with {numbers} cannot be recorded: {error}"
            raise RuntimeError(f"{what}: emit takes integers; you may also leave out its calls") from None
    path = fmt.events_file(directory, pid, 0)
    header = fmt.HEADER.pack(fmt.MAGIC, fmt.VERSION, fmt.RECORD.size, pid, outcome.events[0][0], len(records), 0)
    path.write_bytes(header.ljust(fmt.HEADER_SIZE, b"\0") + b"".join(records))
    fmt.text_file(path).write_text("".join(f"{line}\n" for line in texts), encoding="utf-8")
