"""`live --once`: one moment of a run, which can also be saved as SVG."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from tracing.analysis.hang.explain import explain
from tracing.views.live.event_lines import stuck_in_words
from tracing.views.live.panels import Moment, render
from tracing.views.live.playback import Clock
from tracing.views.live.processes import Processes
from tracing.views.live.recent import Recent, choose

MOMENTS = 64  # of a finished trace, among which a busy one is looked for


def one_moment(source: Processes, clock: Clock) -> Moment:
    """The present one; for a finished run a busy one, or the last if it failed or was stuck."""
    trace, title = source.source.trace, source.path.name
    state = trace.state(-1)
    now = max(state.time, clock()) if source.running else state.time
    stuck = stuck_in_words(explain(trace, now if source.running else None), trace.path)
    if source.running or stuck or len(trace) == 0 or any(loader.error is not None for loader in state.loaders):
        facts = Recent(trace, state, now)
        facts.stuck = stuck
        return Moment(state, facts, title, "● live" if source.running else "ended")
    found = []
    for k in np.unique(np.linspace(0, len(trace) - 1, MOMENTS, dtype=int)).tolist():
        state = trace.state(k)
        found.append(Moment(state, Recent(trace, state, state.time), title, f"event {k + 1} of {len(trace)}"))
    return max(reversed(found), key=_interest)  # of equally busy ones the last


def _interest(moment: Moment) -> int:
    """How much there is to see: in how many places batches are, above all in the reorder buffer."""
    loader = choose(moment.state, moment.recent.loader)
    if loader is None:
        return 0
    queues = (loader.index_queues, loader.result_queues, [loader.data_queue])
    lively = sum(any(map(len, kind)) for kind in queues) + sum(worker.task >= 0 for worker in loader.workers)
    return lively + 3 * bool(loader.reorder_buffer)


def save(moment: Moment, path: Path, width: int, height: int) -> None:
    """Write it as SVG. Raises OSError if that fails."""
    console = Console(record=True, file=io.StringIO(), force_terminal=True, width=width, height=height)
    console.print(render(moment, width, height))
    svg = console.export_svg(title=f"python -m tracing live {moment.title}", theme=DIMMED_MONOKAI)
    # rich's picture fetches its font from the network when it is viewed; ours uses the reader's own.
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg)
    svg = svg.replace("Fira Code, monospace", "Fira Code, Menlo, Consolas, DejaVu Sans Mono, monospace")
    path.write_text(svg, encoding="utf-8")
