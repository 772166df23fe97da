"""Reads what a loader emits: records its events, and draws, checks and explains them.

Nothing is imported before it is used: each process that records imports this package, and few of them draw.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracing.analysis.check.check import Violation
    from tracing.analysis.check.ranks import Finding, check
    from tracing.analysis.compare import Comparison, compare
    from tracing.analysis.report.report import Report
    from tracing.analysis.report.run_report import RunReport, report
    from tracing.analysis.whatif.whatif import WhatIf, whatif
    from tracing.recording.record import record
    from tracing.recording.torch_loader.attach import attach
    from tracing.trace.file_reader import TraceDamage, TraceError
    from tracing.trace.state import State
    from tracing.trace.trace import Trace, load
    from tracing.views.step_through import step
    from tracing.views.timeline import timeline

__all__ = [
    "Comparison", "Finding", "Report", "RunReport", "State", "Trace", "TraceDamage", "TraceError", "Violation",
    "WhatIf", "attach", "check", "compare", "load", "record", "report", "step", "timeline", "whatif",
]  # fmt: skip
_NAMES_IN = {
    "tracing.analysis.check.check": ("Violation",),
    "tracing.analysis.check.ranks": ("Finding", "check"),
    "tracing.analysis.compare": ("Comparison", "compare"),
    "tracing.analysis.report.report": ("Report",),
    "tracing.analysis.report.run_report": ("RunReport", "report"),
    "tracing.analysis.whatif.whatif": ("WhatIf", "whatif"),
    "tracing.recording.record": ("record",),
    "tracing.recording.torch_loader.attach": ("attach",),
    "tracing.trace.file_reader": ("TraceDamage", "TraceError"),
    "tracing.trace.state": ("State",),
    "tracing.trace.trace": ("Trace", "load"),
    "tracing.views.step_through": ("step",),
    "tracing.views.timeline": ("timeline",),
}
_HOMES = {name: module for module, names in _NAMES_IN.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
