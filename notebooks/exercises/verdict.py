"""The verdict on an answer, and as plain data, as which it comes out of the answer's process."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
from typing import Any


class Status(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_ATTEMPTED = "not attempted"


@dataclass
class Finding:
    """The first thing that is wrong with an answer, in words."""

    mistake: str  # a known one, by its short name; else the law that is broken, or a general one ("syntax error")
    call: str  # what was tried: "fetch([3, 1])"
    got: str  # what came back or was raised
    expected: str  # what should have, there
    cause: str  # the likely reason, and what to think about
    seen: list[str] = field(default_factory=list)  # more lines, such as what waits for what
    schedule: str = ""  # of a run in the simulated world: simulate(program, schedule=...)
    trace: str = ""  # the paths of its trace
    picture: str = ""  # and of its timeline


@dataclass
class Verdict:
    """Whether an answer passed, and why not."""

    exercise: str  # "07"
    status: Status
    finding: Finding | None = None  # of one that failed
    missing: str = ""  # functions still to write
    printed: list[str] = field(default_factory=list)
    reference: str = ""  # of one that passed: minidl's version
    seconds: float = 0.0  # that the grading took

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED

    def plain(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {**asdict(self), "status": self.status.value}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Verdict:
        finding = Finding(**plain["finding"]) if plain["finding"] else None
        return cls(**{**plain, "status": Status(plain["status"]), "finding": finding})
