"""The last lines of the live view: each recent event in words, and a hang in two lines.

0.412 s main       keeps  8  for later: 7 comes first
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracing.analysis.hang.hang import Hang
from tracing.analysis.hang.stuck_moments import Ending
from tracing.trace.event_words import sentence, thread_name
from tracing.trace.trace import Actor
from tracing.trace.words import command
from tracing.views.terminal.batch_cells import cell
from tracing.views.terminal.layout import DIM, Line, text


def event_line(event: np.void, actor: Actor, start: int) -> Line:
    """When, after `start` (ns), which thread did what."""
    words, thread = sentence(event), "feeder" if actor.role == "feeder" else thread_name(actor)
    batch = [] if words.batch is None else [cell(words.batch)]
    time = (int(event["time"]) - start) / 1e9
    return [text(f"{time:8.3f} s ", DIM), text(f"{thread:11}"), text(words.before), *batch, text(words.after)]


def stuck_in_words(hang: Hang | None, path: Path) -> tuple[str, ...]:
    """Which thread keeps which waiting, and the command that explains it; () if none does."""
    if hang is None:
        return ()
    first, last = hang.links[0], hang.links[-1]
    reason = f"{last.who} {last.what}"
    if first is not last:
        reason = f"{first.who.partition(' (pid')[0]} waits for {last.who}, which {last.what}"
    reason += f", at {last.line}" if last.line is not None else ""
    stuck = "it looks stuck" if hang.ending is Ending.ONGOING else "it was stuck"
    return f"{stuck}: {reason}", f"why, and what to do: {command()} check {path}"
