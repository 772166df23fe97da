"""What other options should save, for the report: predicted by a replay of the recorded durations (tracing.whatif)
where that is possible, and otherwise estimated by the report's own rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minidl import events
from tracing.analysis.measure.measures import Measures
from tracing.analysis.whatif.durations import durations, recorded_setting
from tracing.trace.words import duration

if TYPE_CHECKING:
    from tracing.analysis.whatif.whatif import WhatIf

MOST_BATCHES = 80  # to replay: nobody should have to wait for the report
NEGLIGIBLE = 0.02  # of the time: what saves less saves nothing


def saving(measures: Measures, estimate: int, about: str = "about", **changes: Any) -> str:
    """The end of a sentence: "should save about 1.20 s (...)". `changes` are fields of a Setting; `estimate` in ns."""
    return _in_words(measures, _replay(measures, [changes]), estimate, about, changes)


def more_workers_saving(measures: Measures, wanted: int, estimate: int) -> tuple[int, str]:
    """How many workers, and what they should save: those `wanted`, or fewer if the others gain nothing in a replay
    (each takes time to start). 4, "num_workers=4 instead of 2 should save about 1.20 s (...)"."""
    workers = measures.num_workers
    tried = [workers << doubled for doubled in range(1, 10) if workers << doubled < wanted]
    found = _replay(measures, [{"num_workers": each} for each in (*tried, wanted)])
    if found is not None and found.best.setting.num_workers > workers:
        wanted = found.best.setting.num_workers
    saved = _in_words(measures, found, estimate, "about", {"num_workers": wanted})
    return wanted, f"num_workers={wanted} instead of {workers} {saved}"


def _in_words(measures: Measures, found: WhatIf | None, estimate: int, about: str, changes: dict[str, Any]) -> str:
    if found is None:
        return f"should save {about} {duration(estimate)}"
    was = recorded_setting(measures)
    before, after = (found[setting].batches_per_second for setting in (was, replace(was, **changes)))
    rates = f"replayed: {before:,.1f} → {after:,.1f} batches a second"
    if after * (1 - NEGLIGIBLE) <= before:
        return f"saves nothing ({rates})"
    about = "about" if was.num_workers else "up to"  # how long a worker takes to start is not known
    return f"should save {about} {duration(measures.total * (1 - before / after))} ({rates}; `whatif` tries more)"


def _replay(measures: Measures, tried: list[dict[str, Any]]) -> WhatIf | None:
    """The recorded setting and others, each with some fields changed. None: there is no replay, or it is too far off.

    Not while this program records: what it loads meanwhile must not run on the simulated machine."""
    if events.installed() is not None:
        return None
    try:
        from tracing.analysis.whatif.whatif import BELIEVED, predict

        whole = durations(measures)
        settings = [whole.setting, *(replace(whole.setting, **changes) for changes in tried)]
        found = predict(measures, whole, settings, most=MOST_BATCHES)
    except (ValueError, ModuleNotFoundError):  # too little was loaded; or torch or greenlet is not installed here
        return None
    return found if abs(found.off) <= BELIEVED else None
