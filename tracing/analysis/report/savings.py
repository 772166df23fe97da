"""What other options should save, for the report: told by a replay of the recorded durations (tracing.whatif), where
one can be made, and else as the rules of the report estimate it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minidl import events
from tracing.analysis.measure.measures import Measures
from tracing.analysis.whatif.durations import durations, recorded_setting
from tracing.trace.words import duration

if TYPE_CHECKING:
    from tracing.analysis.whatif.whatif import WhatIf

MOST = 80  # batches that are replayed: the report must not be waited for
NOTHING = 0.02  # of the time: what saves less saves nothing


def saving(measures: Measures, estimate: int, words: str = "some", **changes: Any) -> str:
    """The end of a sentence: "should save some 1.20 s (...)". `changes` are fields of a Setting; `estimate` in ns."""
    return _told(measures, _replayed(measures, [changes]), estimate, words, changes)


def with_more_workers(measures: Measures, wanted: int, estimate: int) -> tuple[int, str]:
    """How many workers, and what they should save: those `wanted`, or fewer if a replay gains nothing by the others
    (each takes time to start). 4, "num_workers=4 instead of 2 should save some 1.20 s (...)"."""
    workers = measures.num_workers
    tried = [workers << doubled for doubled in range(1, 10) if workers << doubled < wanted]
    found = _replayed(measures, [{"num_workers": each} for each in (*tried, wanted)])
    if found is not None and found.best.setting.num_workers > workers:
        wanted = found.best.setting.num_workers
    saved = _told(measures, found, estimate, "some", {"num_workers": wanted})
    return wanted, f"num_workers={wanted} instead of {workers} {saved}"


def _told(measures: Measures, found: WhatIf | None, estimate: int, words: str, changes: dict[str, Any]) -> str:
    if found is None:
        return f"should save {words} {duration(estimate)}"
    was = recorded_setting(measures)
    before, after = (found[setting].batches_per_second for setting in (was, replace(was, **changes)))
    rates = f"replayed: {before:,.1f} → {after:,.1f} batches a second"
    if after * (1 - NOTHING) <= before:
        return f"saves nothing ({rates})"
    some = "some" if was.num_workers else "up to"  # what it takes to start a worker is not known
    return f"should save {some} {duration(measures.total * (1 - before / after))} ({rates}; `whatif` tries more)"


def _replayed(measures: Measures, tried: list[dict[str, Any]]) -> WhatIf | None:
    """The recorded setting and others that differ in so much from it; None: that cannot be made, or not be believed.
    Not while this program records: what it loads meanwhile must not meet a machine that is not there."""
    if events.installed() is not None:
        return None
    try:
        from tracing.analysis.whatif.whatif import BELIEVED, predict

        whole = durations(measures)
        settings = [whole.setting, *(replace(whole.setting, **changes) for changes in tried)]
        found = predict(measures, whole, settings, most=MOST)
    except (ValueError, ModuleNotFoundError):  # too little was loaded; or no torch, or greenlet, where this is read
        return None
    return found if abs(found.off) <= BELIEVED else None
