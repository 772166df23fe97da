"""Reads what a loader emits: records its events, and draws, checks and explains them.

Nothing is imported before it is used: each process that records imports this package, and few of them draw.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracing.analysis.check import Violation
    from tracing.analysis.compare import Comparison, compare
    from tracing.analysis.report.report import Report
    from tracing.analysis.whatif.whatif import WhatIf, whatif
    from tracing.ranks.check import Finding, check
    from tracing.ranks.report import RunReport, report
    from tracing.ranks.timeline import timeline
    from tracing.recording.record import record
    from tracing.trace.file_reader import TraceDamage, TraceError
    from tracing.trace.state import State
    from tracing.trace.trace import Trace, load
    from tracing.tuning import Tuning, tune
    from tracing.views.step_through import step

__all__ = [
    "Comparison", "Finding", "Report", "RunReport", "State", "Trace", "TraceDamage", "TraceError", "Tuning",
    "Violation", "WhatIf", "check", "compare", "load", "record", "report", "step", "timeline", "tune", "whatif",
]  # fmt: skip
_NAMES_IN = {
    "tracing.analysis.check": ("Violation",),
    "tracing.analysis.compare": ("Comparison", "compare"),
    "tracing.analysis.report.report": ("Report",),
    "tracing.analysis.whatif.whatif": ("WhatIf", "whatif"),
    "tracing.ranks.check": ("Finding", "check"),
    "tracing.ranks.report": ("RunReport", "report"),
    "tracing.ranks.timeline": ("timeline",),
    "tracing.recording.record": ("record",),
    "tracing.trace.file_reader": ("TraceDamage", "TraceError"),
    "tracing.trace.state": ("State",),
    "tracing.trace.trace": ("Trace", "load"),
    "tracing.tuning": ("Tuning", "tune"),
    "tracing.views.step_through": ("step",),
}
_HOMES = {name: module for module, names in _NAMES_IN.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
