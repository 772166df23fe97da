"""Where main's time went, for the line under the title."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracing.trace.state import MainStatus
from tracing.trace.thread_activity import starts_up
from tracing.views.timeline.spans import Look, Spans


def main_in_words(main: Spans, begin: int, end: int, killed: Sequence[int] = ()) -> str:
    """How main spent the time from `begin` to `end` (ns), in percents that sum to 100. Shares of 0 % are left out.
    killed: when it was (ns)."""
    edges, starting = np.array([begin, end]), starts_up(main.status, main.batch)
    start_up, main = main.where(starting), main.where(~starting)
    looks = main.shares(edges)[:, 0]
    shares = {
        "start-up": start_up.shares(edges).sum(),
        "in the training step": looks[Look.TRAINING],
        "waiting for batches": looks[Look.WAITING],
        "at work in the loader": looks[[Look.BUSY, Look.FETCH, Look.COLLATE, Look.PIN]].sum(),
        "after an error": main.share(MainStatus.RAISED, begin, end),
        "shutdown": main.share(MainStatus.SHUTTING_DOWN, begin, end),
        "after main was killed": sum(max(0, end - max(time, begin)) for time in killed) / (end - begin),
    }
    shares["outside the loader's life"] = max(0.0, 1 - sum(shares.values()))  # before it, after it, between epochs
    rounded = percent(list(shares.values()))
    return ", ".join(f"{number}% {what}" for what, number in zip(shares, rounded, strict=True) if number)


def percent(shares: list[float]) -> list[int]:
    """Shares that sum to 1 as whole percents that sum to 100: those that rounding down cuts most are rounded up."""
    down = [int(share * 100) for share in shares]
    losses = sorted(range(len(shares)), key=lambda i: down[i] - shares[i] * 100)
    for i in losses[: 100 - sum(down)]:
        down[i] += 1
    return down
