"""Which rank holds up the others, and why: in each step all wait for the last one to begin it."""

from __future__ import annotations

import numpy as np

from tracing.ranks.ranks import Ranks
from tracing.ranks.steps import Steps
from tracing.trace.words import duration

MATTERS = 0.05  # a smaller share of the time than this is not worth a sentence ...
IN_TURNS = 0.1  # ... or than this, if they take turns: some of it is chance
MOST = 0.5  # of the waiting: less than this is no single rank's doing

# Where a rank is late: the words for it.
START, LOADER, STEP, BETWEEN = "start-up", "its loader", "its training step", "between its epochs"
EXPLAINED = {
    START: "It is late because its loader takes longer to start ({}).",
    LOADER: "It waits longer for its batches ({}): they take longer to make, or it is just behind, where all wait.",
    STEP: "Its loader is not the cause: it asks late for its batches ({}), so what it does at the end of its training "
    "step takes longer, such as logging or saving.",
    BETWEEN: "It is late where an epoch begins ({}): what it does between its epochs takes longer, such as saving{}.",
}


class HoldUp:
    """The rank that kept the others waiting."""

    def __init__(self, ranks: Ranks, steps: Steps) -> None:
        kept, first = steps.kept_waiting(), steps.number[:, 0] == 0
        total = max(1, int(steps.began.max() - steps.asked[steps.asked >= 0].min(initial=int(steps.began.min()))))
        worst = int(kept.argmax())
        alone = bool(kept[worst] >= max(MOST, 1.5 / len(kept)) * kept.sum())  # of two, one is always half of it
        mine = steps.began.argmax(axis=1) == worst
        self.name = ranks.together[worst].name if alone else ""  # "rank 2"; "" if they take turns
        self.last_in = int(mine.sum())  # in how many steps it was the last
        self.steps = len(mine)
        self.cost_ns = int(kept[worst] if alone else steps.waited.sum() / len(kept))  # what each waits, on average
        self.share = self.cost_ns / total  # of the time from the first step to the last, 0 to 1
        # START, ... -> how much later that made it, in all
        self.late_ns = _late(steps.asked[mine], steps.began[mine], first[mine], worst)
        self.because = max(self.late_ns, key=self.late_ns.__getitem__)  # START, LOADER, STEP or BETWEEN
        if not alone:  # where they are late differs from rank to rank: all that can be said is when
            self.because = BETWEEN if steps.waited[first].sum() > MOST * steps.waited.sum() else LOADER
        own = [same for same in ranks.loaders if list(same) == [ranks.together[worst]]]
        self.alone_with = [loader for same in own for loader in same.values()]  # its loaders that no other rank has

    def __str__(self) -> str:
        waited = f"{duration(self.cost_ns)}, {self.share:.0%} of the time, in what counts as their training step"
        if not self.name and self.because == BETWEEN:
            return f"They take turns: now one is late where an epoch begins, now another. Each waits {waited}."
        if not self.name:
            return f"They take turns: in each step another rank is the last, and each waits {waited}."
        late = f"in {self.last_in} of {self.steps} steps it was the last, and the others waited {waited}"
        own = "".join(f", or iterating loader {loader}, which only it has" for loader in self.alone_with[:1])
        why = EXPLAINED[self.because].format(duration(self.late_ns[self.because]), own)
        return f"{self.name[0].upper()}{self.name[1:]} holds up the others: {late}. {why}"


def hold_up(ranks: Ranks, steps: Steps) -> HoldUp | None:
    """The rank that holds up the others; None if none does, or if they do not wait for each other."""
    found = HoldUp(ranks, steps) if steps.synchronised else None
    return found if found and found.share >= (MATTERS if found.name else IN_TURNS) else None


def _late(asked: np.ndarray, began: np.ndarray, first: np.ndarray, rank: int) -> dict[str, int]:
    """Where a rank was later than the others are on average, in the steps that it was the last to begin."""
    known = (asked >= 0).all(axis=1)

    def later(times: np.ndarray) -> np.ndarray:
        return times[:, rank] - np.delete(times, rank, axis=1).mean(axis=1)

    in_loader, before = later(began - asked), later(asked)
    return {
        START: int(in_loader[known & first].sum()),
        LOADER: int(in_loader[known & ~first].sum()),
        STEP: int(before[known & ~first].sum()),
        BETWEEN: int(before[known & first].sum()),
    }
