"""The verdict on an answer; and as plain data, as which it comes out of the answer's process: what that sends is not
trusted, so it is never unpickled."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


TEXTS = ("mistake", "call", "got", "expected", "cause")  # of a finding
OF_A_RUN = ("rule", "sentence", "token", "waits", "error", "result")


def plain(verdict: Verdict) -> dict[str, Any]:
    """What JSON can hold of it."""
    finding, found = verdict.finding, {"status": verdict.status.value, "missing": verdict.missing}
    if finding is None:
        return found
    told: dict[str, Any] = {name: getattr(finding, name) for name in TEXTS}
    told["seen"] = finding.seen
    if finding.broken is not None:
        told["broken"] = {name: getattr(finding.broken, name) for name in OF_A_RUN}
        told["broken"]["what"] = finding.broken.breach.what
    return {**found, "finding": told}


def understood(found: Any, number: str, path: Path) -> Verdict:
    """The verdict on the answer in this file. ValueError: this is none."""
    from minidl.world.simulated.schedule import parse
    from notebooks.exercises.protocol import Breach, Broken

    try:
        verdict = Verdict(number, Status(found["status"]), missing=_text(found["missing"]))
        if "finding" not in found:
            return verdict
        told = found["finding"]
        words: dict[str, Any] = {name: _text(told[name]) for name in TEXTS}
        verdict.finding = Finding(**words, seen=[_text(each) for each in told["seen"]])
        if "broken" in told:
            run: dict[str, Any] = {name: _text(told["broken"][name]) for name in OF_A_RUN}
            parse(run["token"])
            trace, picture = path.with_suffix(".trace"), path.with_suffix(".png")
            verdict.finding.broken = Broken(
                **run,
                breach=Breach(_text(told["broken"]["what"])),
                trace=trace if trace.exists() else None,
                picture=picture if picture.exists() else None,
            )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no verdict: {error!r}") from None
    return verdict


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
