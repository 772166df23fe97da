"""The verdict on an answer."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from notebooks.exercises.exercise import Finding

PRINTED = 20  # lines of what the answer printed that are shown


class Status(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_ATTEMPTED = "not attempted"


@dataclass
class Verdict:
    """Whether an answer passed, and why not."""

    exercise: str  # "07"
    status: Status
    finding: Finding | None = None  # of one that failed
    missing: str = ""  # functions still to write
    printed: list[str] = field(default_factory=list)
    seconds: float = 0.0  # that the grading took

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED
