"""Each view shows a part of a trace by the same arguments, and says in one line what it cannot show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracing
from tests.tracing.traces import begin
from tracing.views import sequence
from tracing.views.sequence import Phase

Recorded = Callable[[str], tracing.Trace]
VIEWS: dict[str, Any] = {"timeline": tracing.timeline, "sequence": sequence.as_text, "step": tracing.step}
NOT_THERE: list[tuple[dict[str, Any], str]] = [
    ({"loader": 10**6}, "no loader 1000000"), ({"epoch": 7}, "epoch 7"), ({"start": 1e6}, "nothing to draw"),
    ({"batches": (500, 600)}, "no batches 500 to 599"), ({"start": 2.0, "end": 1.0}, "nothing to draw"),
]  # fmt: skip
OF_ONE_VIEW = [
    ("timeline", {"follow": 500}, "batch 500"), ("sequence", {"most": 0}, "at most 0 rows"),
    ("sequence", {"width": 39}, "40 columns"), ("step", {"most": 0}, "at most 0 events"),
    ("sequence", {"phase": Phase.SHUTDOWN}, "does not start to shut down"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("view", "part", "words"), [(view, part, words) for view in VIEWS for part, words in NOT_THERE] + OF_ONE_VIEW
)
def test_what_cannot_be_shown_is_one_clear_line(
    recorded: Recorded, view: str, part: dict[str, Any], words: str
) -> None:
    if view == "step" and "most" not in part:
        words = "none of the trace's .* events is in this part"
    with pytest.raises(ValueError, match=words) as raised:
        VIEWS[view](recorded("serial" if "phase" in part else "in_order"), **part)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("view", VIEWS)
def test_a_trace_without_events_cannot_be_shown(view: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the trace has no events"):
        VIEWS[view](tracing.load(begin(tmp_path / "empty")))
