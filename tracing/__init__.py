"""Reads what a loader says: records its events, and draws, checks and explains them."""

from __future__ import annotations

from typing import Any

from tracing.attach import attach
from tracing.checks import Violation, check
from tracing.compare import Comparison, compare
from tracing.reader import TraceDamage, TraceError
from tracing.recording import record
from tracing.report import Report, report
from tracing.state import State
from tracing.trace import Trace, load
from tracing.whatif import WhatIf, whatif

__all__ = [
    "Comparison",
    "Report",
    "State",
    "Trace",
    "TraceDamage",
    "TraceError",
    "Violation",
    "WhatIf",
    "attach",
    "check",
    "compare",
    "load",
    "record",
    "report",
    "step",
    "timeline",
    "whatif",
]


def timeline(trace: Trace, **options: Any) -> Any:
    """Draw a trace as a matplotlib Figure; the options are those of tracing.views.timeline.timeline."""
    from tracing.views.timeline import timeline as draw  # matplotlib takes a second to import: only who draws waits

    return draw(trace, **options)


def step(trace: Trace, **options: Any) -> Any:
    """Step through a trace in a notebook; `.save(path)` writes the page. Options: see tracing.views.stepper.step."""
    from tracing.views.stepper import step as make

    return make(trace, **options)
