"""For graders: call an answer and compare what comes back; and, at the end, run it in real processes.

tried = attempt(answer, "fetch([3, 1])", lambda: fetch(...))
if tried.value != [9, 1]:
    return tried.finding("several samples", "[9, 1]", "…why…")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from notebooks.exercises.answers import Answer
from notebooks.exercises.exercise import Finding
from notebooks.exercises.heartbeat import beat

SLIPS = (NameError, AttributeError, ImportError)  # a misspelt name, not a mistaken idea
LONGEST = 200  # characters of a value that are shown
MISSPELT = "Is a name misspelt? The legend at the top of the file lists those you need."


class Raised:
    """In place of a value: equal to nothing."""


@dataclass
class Attempt:
    """A call, and its value or exception."""

    call: str
    value: Any
    error: BaseException | None
    got: str

    def finding(self, mistake: str, expected: str, cause: str) -> Finding:
        """What is wrong with it. A misspelt name shows nothing about its author's idea."""
        if isinstance(self.error, SLIPS):
            return Finding("raises", self.call, self.got, expected, MISSPELT)
        return Finding(mistake, self.call, self.got, expected, cause)


def attempt(answer: Answer, call: str, function: Callable[[], Any]) -> Attempt:
    """Call it, and keep what it returns or raises."""
    beat(call)
    try:
        with answer.at_work():
            value = function()
    except Exception as error:
        return Attempt(call, Raised, error, answer.raised(error))
    return Attempt(call, value, None, short(value))


def short(value: Any) -> str:
    """A value in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def with_real_processes(answer: Answer, program: Callable[[], Any], *expected: Any) -> Finding | None:
    """The program in real processes with the learner's functions: what held in the simulated world must hold here."""
    with answer.at_work():
        tried = attempt(answer, "the same with real processes", program)
    if tried.error is None and any(tried.value == each for each in expected):
        return None
    cause = "This works for single calls, or in the simulated world, but not with real worker processes."
    return tried.finding("real processes", " or ".join(map(short, expected)), cause)


def first_finding(findings: Iterable[Finding | None]) -> Finding | None:
    """The first that is not None."""
    return next((each for each in findings if each is not None), None)
