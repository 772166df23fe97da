"""From a run that breaks a rule to a finding about the answer: what raised where, and what waits for what.

broken = play(program, rules)
if broken is not None:
    return explained(answer, broken, "no buffer", "a loader with two workers", CAUSES)
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import minidl
from minidl.world.simulated import simulate
from minidl.world.simulated.cores import SECOND
from minidl.world.simulated.machine import Machine
from minidl.world.simulated.processes import Thread
from minidl.world.simulated.schedule import Schedule, parse
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import MISSPELT, SLIPS
from notebooks.exercises.departure import departure
from notebooks.exercises.exercise import Finding
from notebooks.exercises.protocol import COMES_TO_AN_END, RAISES_NOTHING, Broken
from notebooks.exercises.waiting_lines import lines_that_wait

MINIDL = str(Path(minidl.__file__).parent)
FOLLOW = "Follow the events of the run up to the red line: which of them is wrong, or should not be there?"
OURS = "It comes from minidl's own `{}`. What did your code give it, or leave in a state that it does not expect?"
RAISES = "Your code raises where it should not. Is there a case you have not thought of?"


def explained(answer: Answer, broken: Broken, mistake: str, call: str, causes: Mapping[str, str]) -> Finding:
    """The finding about a run. An exception is shown with the line of the answer that it came from. If it is of the
    kind that a misspelt name raises, and the mistake is not a known one, only the slip is reported."""
    error = raised(answer, broken)
    causes = dict(causes)
    if error is None and (ours := raised_by(broken)):
        causes.setdefault(RAISES_NOTHING.name, OURS.format(ours))
    with answer.at_work():  # the run is repeated
        waits = lines_that_wait(broken, answer.path)
        broken = cut(replace(broken, waits="\n".join([*waits.values(), *who_waits(broken.waits, set(waits))])))
    broken.replaced = departure(answer, broken.run.outcome)
    got = broken.breach.what.split("\n")[0]
    if broken.rule == COMES_TO_AN_END.name and broken.waits:
        got = f"it never ends: {broken.waits.splitlines()[0]}"
    slip = isinstance(error, SLIPS) and mistake not in causes
    if error is not None and (slip or mistake == RAISES_NOTHING.name):
        cause = MISSPELT if isinstance(error, SLIPS) else RAISES
        return Finding("raises", call, answer.raised(error), broken.sentence, cause, broken)
    seen = [f"It {answer.raised(error)}."] if error is not None else []
    seen += _departs(broken.replaced)
    return Finding(mistake, call, got, broken.sentence, causes.get(mistake, FOLLOW), broken, seen)


def _departs(replaced: dict[str, Any]) -> list[str]:
    if replaced["departs"] < 0:
        return []
    where = f"Event {replaced['departs']} is the first that minidl's own functions do not emit under this schedule"
    return [f"{where}: {replaced['instead']}."]


def raised(answer: Answer, broken: Broken) -> BaseException | None:
    """The exception from the answer's own lines: in another thread, in a worker, or in main. None: the run failed in
    another way."""
    outcome = broken.run.outcome
    errors = [*(error for _, error in outcome.errors), outcome.error]
    return next((error for error in errors if error is not None and answer.line_of(error)), None)


def raised_by(broken: Broken) -> str:
    """The function of minidl that main's exception came from."""
    error = broken.run.outcome.error
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return next((each.name for each in reversed(frames) if each.filename.startswith(MINIDL)), "")


def who_waits(text: str, told: set[str]) -> list[str]:
    """From the explanation of a hang, the lines that show what waits for what, except for threads already `told` of.
    How long it waits, and what to look for in a real system, mean nothing in a simulated one."""
    lines = text.partition("Last events")[0].splitlines()[1:]
    kept = [line for line in lines if line.strip() and line.split()[0] not in ("Why", "Next", "Beside")]
    short = [re.sub(r": for [^,:]+, since [^[]+", " ", line).strip() for line in kept]
    return [line for line in short if line.partition(" (pid")[0] not in told]


def cut(broken: Broken) -> Broken:
    """The same run up to its first wait of a second or more, if the breach shows by then: in a picture of seconds the
    microseconds that matter would be invisible."""
    run = broken.run
    outcome = run.outcome
    times = [event[0] for event in outcome.events]
    last = next((k for k in range(len(times) - 1) if times[k + 1] - times[k] >= SECOND), None)
    if last is None or not (run.never_ends or all(event <= last for event in broken.breach.events)):
        return broken
    steps = Steps(outcome.token, last)
    simulate(outcome.program, schedule=steps, **outcome.options)
    options = {**outcome.options, "most_steps": steps.taken}
    shorter = simulate(outcome.program, schedule=outcome.token, **options)
    shown = [min(event, last, len(shorter.events) - 1) for event in broken.breach.events]
    return replace(broken, breach=replace(broken.breach, events=shown), outcome=shorter)


class Steps(Schedule):
    """Counts the steps that a run has taken when it emits an event."""

    def __init__(self, token: str, event: int) -> None:
        super().__init__(parse(token).moves)
        self.event = event
        self.taken = 0

    def choose(self, machine: Machine) -> Thread | None:
        if not self.taken and len(machine.events) > self.event:
            self.taken = machine.step - 1
        return super().choose(machine)
