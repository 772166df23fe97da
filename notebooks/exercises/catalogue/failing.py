"""What a run that breaks a rule says of the answer: who raised what, and where; and small looks at its events."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from minidl.events import Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.exercise import Finding
from notebooks.exercises.probes import MISSPELT
from notebooks.exercises.protocol import COMES_TO_AN_END, Broken, Run

FOLLOW = "Follow the events of the run up to the red line: which of them should be another, or should not be there?"
RAISES = "Your code raises where it should not: is it a case you have not thought of?"


def tell(answer: Answer, broken: Broken, mistake: str, call: str, causes: dict[str, str]) -> Finding:
    """The finding about a run. An exception is told with the line of the answer that it came from; a name that is
    misspelt says nothing of what its author had in mind."""
    broken.waits = who_waits(broken.waits)
    error = raised(answer, broken)
    lines = re.findall(rf'File "{re.escape(str(answer.path))}", line (\d+)', broken.error)  # it came from a worker
    got = broken.breach.what.split("\n")[0]
    if error is not None:
        got = answer.raised(error)
    elif lines:
        error = broken.outcome.error if broken.outcome is not None else None
        got = f"raised {broken.error.strip().splitlines()[-1]} (line {lines[-1]} of {answer.path.name})"
    elif broken.rule == COMES_TO_AN_END.name and broken.waits:
        got = f"it never ends: {broken.waits.splitlines()[0]}"
    if isinstance(error, (NameError, AttributeError, ImportError)) and mistake not in causes:
        return Finding("raises", call, got, broken.sentence, MISSPELT, broken)
    cause = causes.get(mistake, FOLLOW if error is None else RAISES)
    return Finding(mistake, call, got, broken.sentence, cause, broken)


def who_waits(text: str) -> str:
    """Of what is known of a standstill the lines that say who waits for whom. How long, and what to look for in a real
    system, says nothing of a simulated one."""
    lines = text.partition("Last events")[0].splitlines()[1:]
    kept = [line for line in lines if line.strip() and line.split()[0] not in ("Why", "Next")]
    return textwrap.dedent("\n".join(re.sub(r": for [^,:]+, since [^[]+", " ", line) for line in kept)).strip()


def raised(answer: Answer, broken: Broken) -> BaseException | None:
    """What came out of the answer's own lines: in a worker, or in main. None: the run failed in another way."""
    assert broken.outcome is not None
    errors = [error for _, error in broken.outcome.errors]
    if broken.outcome.error is not None:
        errors.append(broken.outcome.error)
    return next((error for error in errors if "(line " in answer.raised(error)), None)


def sent(run: Run) -> Iterator[tuple[int, int, int]]:
    """(position, task, worker) of each task that main has sent."""
    for position in run.of(Kind.PUT, queue=Queue.INDEX):
        event = run.events[position]
        if event["task"] >= 0:
            yield int(position), int(event["task"]), int(event["worker"])


def key(event: object) -> tuple[int, int, int]:
    """(epoch, task, worker) of an event."""
    return int(event["epoch"]), int(event["task"]), int(event["worker"])  # type: ignore[index]
