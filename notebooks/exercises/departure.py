"""Where a failing run leaves the way of minidl's own functions, which run under the same schedule.

An answer may leave out calls of `emit`, so kinds that only its functions would emit, and that it does not, are left out
on both sides. Times are not compared, nor CPU times.
"""

from __future__ import annotations

from typing import Any

from minidl.events import CLOCKED, Kind
from minidl.world.simulated import Outcome, simulate
from notebooks.exercises.answers import Answer
from tracing.recording.source_lines import emit_sites, sites_in
from tracing.trace.event_words import sentence

FIELDS = ("time", "thread", "kind", "epoch", "task", "worker", "queue", "value")


def departure(answer: Answer, outcome: Outcome) -> dict[str, Any]:
    """What a trace of this run has as `replaced`: see tracing.trace.trace. To be called when the answer is not at
    work."""
    text = answer.path.read_text(encoding="utf-8")
    functions = [reference.rpartition(":")[2] for reference in answer.functions]
    silent = _silent(text, functions)
    own = simulate(outcome.program, schedule=outcome.token, **outcome.options)
    ours, theirs = _comparable(outcome, silent), _comparable(own, silent)
    at, instead = -1, ""
    for k, (position, event) in enumerate(ours):
        if k >= len(theirs) or theirs[k][1] != event:
            at, instead = position, _in_words(own, theirs[k][0]) if k < len(theirs) else "there the run is over"
            break
    return {"file": answer.path.name, "text": text, "functions": functions, "departs": at, "instead": instead}


def _silent(text: str, functions: list[str]) -> set[int]:
    """The kinds that these functions of minidl emit and the answer does not."""
    emitted = sites_in(text, "")
    return {
        int(Kind[name])
        for name, sites in emit_sites().items()
        if name not in emitted and any(site.function in functions for site in sites)
    }


def _comparable(outcome: Outcome, silent: set[int]) -> list[tuple[int, tuple[Any, ...]]]:
    """(position, what must be the same) of each event."""
    found = []
    for position, event in enumerate(outcome.events):
        _, thread, kind, epoch, task, worker, queue, value = event[:8]
        if kind not in silent:
            kept = 0 if kind < CLOCKED else value
            found.append((position, (outcome.threads[thread], kind, epoch, task, worker, queue, kept)))
    return found


def _in_words(outcome: Outcome, position: int) -> str:
    event: Any = dict(zip(FIELDS, outcome.events[position][:8], strict=True))
    said = sentence(event)
    batch = "" if said.batch is None else f"batch {said.batch}" if isinstance(said.batch, int) else str(said.batch)
    name = outcome.threads[event["thread"]][1].replace("MainThread", "main")
    return f"there {name} {said.before}{batch}{said.after}"
