"""Reads what a loader emits: records its events, and draws, checks and explains them.

Nothing is imported before it is used: each process that records imports this package, and few of them draw.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracing.analysis.check.check import Violation, check
    from tracing.analysis.compare import Comparison, compare
    from tracing.analysis.report.report import Report, report
    from tracing.analysis.whatif.whatif import WhatIf, whatif
    from tracing.recording.record import record
    from tracing.recording.torch_loader.attach import attach
    from tracing.trace.file_reader import TraceDamage, TraceError
    from tracing.trace.state import State
    from tracing.trace.trace import Trace, load
    from tracing.views.step_through import step
    from tracing.views.timeline import timeline

# The public names, and the modules that they come from.
_HOMES = {
    "Comparison": "tracing.analysis.compare",
    "Report": "tracing.analysis.report.report",
    "State": "tracing.trace.state",
    "Trace": "tracing.trace.trace",
    "TraceDamage": "tracing.trace.file_reader",
    "TraceError": "tracing.trace.file_reader",
    "Violation": "tracing.analysis.check.check",
    "WhatIf": "tracing.analysis.whatif.whatif",
    "attach": "tracing.recording.torch_loader.attach",
    "check": "tracing.analysis.check.check",
    "compare": "tracing.analysis.compare",
    "load": "tracing.trace.trace",
    "record": "tracing.recording.record",
    "report": "tracing.analysis.report.report",
    "step": "tracing.views.step_through",
    "timeline": "tracing.views.timeline",
    "whatif": "tracing.analysis.whatif.whatif",
}
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
