"""From failures to a finding: what was tried, what came, what was expected there, and the likely cause; and of a run in
the simulated world its trace and its timeline, with the place that breaks a law marked.
"""

from __future__ import annotations

import functools
import linecache
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from minidl.events import CLOCKED, Kind
from minidl.world.simulated import Outcome, simulate
from minidl.world.simulated.cores import SECOND
from minidl.world.simulated.schedule import Schedule, parse
from notebooks.exercises import laws, parts
from notebooks.exercises.answers import Answer
from notebooks.exercises.diagnose import ALIKE, nearest
from notebooks.exercises.exercise import TEXTS, sections
from notebooks.exercises.judge import Failure
from notebooks.exercises.verdict import Finding
from tracing.trace.event_words import sentence
from tracing.trace.source_lines import emit_sites

LABEL = 60  # characters beside the line in a picture
FIELDS = ("time", "thread", "kind", "epoch", "task", "worker", "queue", "value")
MISSPELT = "Is a name misspelt? The legend at the top of the file lists those you need."
RAISES = "Your code raises where it should not. Is there a case you have not thought of?"


def finding(answer: Answer, failures: list[Failure]) -> Finding:
    """About the shortest run of those that break the first one's law; all together show which mistake it may be."""
    alike = [each for each in failures if each.breach.law == failures[0].breach.law]
    failure, which = min(alike, key=_length), answer.exercise
    breach = failure.breach
    # A slip in the answer's own line says nothing about its author's idea.
    slips = isinstance(failure.error, (NameError, AttributeError, ImportError)) and answer.is_origin(failure.error)
    mistake = nearest(which, [each.key for each in failures], 1.0 if slips else ALIKE)
    cause = which.causes.get(mistake, "")
    if slips and not mistake:
        cause = MISSPELT
    elif failure.error is not None and not mistake:
        cause = RAISES
    cause = cause or f"{words(failure)[1]} {law_of(breach)}".strip()
    found = Finding(mistake or breach.law, words(failure)[0], breach.what, breach.expected, cause)
    if failure.outcome is not None:
        _show_run(answer, failure, found)
    return found


def _length(failure: Failure) -> tuple[bool, int]:
    """For the shortest to be shown. Of one that never ends, what comes after a long wait would be cut off."""
    outcome = failure.outcome
    if outcome is None:
        return False, 0
    return _long_wait(outcome) is not None and (outcome.deadlock or outcome.endless), len(outcome.events)


def words(failure: Failure) -> tuple[str, str]:
    """What the program does, and what it is about."""
    if isinstance(failure.outcome and failure.outcome.error, parts.SlotsBroken):
        steps = ", ".join(failure.outcome.error.steps)  # type: ignore[union-attr]
        return f"{steps}   (there may be {parts.MOST} slots)", described()["slots"][1]
    return described().get(failure.program.name, (failure.program.name, ""))


@functools.cache
def described() -> dict[str, tuple[str, str]]:
    """From texts/programs.md: what each program does, and what it is about."""
    text = (TEXTS / "programs.md").read_text(encoding="utf-8")
    found = {}
    for name, body in sections(text, "##").items():
        what, _, about = body.partition("\n\n")
        found[name] = " ".join(what.split()), " ".join(about.split())
    return found


def law_of(breach: laws.Breach) -> str:
    """Its sentence."""
    return described().get(f"law: {breach.law}", ("", ""))[0]


# ---- the run


def _show_run(answer: Answer, failure: Failure, found: Finding) -> None:
    """Write the trace and the timeline, and say what the run shows."""
    outcome = failure.outcome
    assert outcome is not None
    with answer.at_work():  # the run is repeated
        if outcome.deadlock:
            waits = _lines_that_wait(outcome, answer.path)
            found.got = f"it never ends: {waits[0]}" if waits else found.got
            found.seen += waits[1:]
        outcome = _cut(outcome)
    if failure.error is not None and "raised" not in found.got:
        found.seen.append(f"It {answer.raised(failure.error)}.")
    about = _replaced(answer, outcome)
    if about["departs"] >= 0:
        found.seen.append(f"Until event {about['departs']} all goes as with minidl's functions; {about['instead']}.")
    found.schedule = outcome.token
    if not outcome.events:
        return
    with answer.at_work():
        _write(outcome, failure.breach, about, answer.path, found)


def _write(outcome: Outcome, breach: laws.Breach, about: dict[str, Any], path: Path, found: Finding) -> None:
    import tracing
    from tracing.recording import simulated_run

    folder = path.with_suffix(".trace")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        simulated_run.write(outcome, folder, about)
    except RuntimeError as error:
        found.seen.append(f"{error}.")
        shutil.rmtree(folder)
        return
    found.trace = str(folder)
    last = len(outcome.events) - 1
    label = textwrap.shorten(breach.what.partition("\n")[0], LABEL, placeholder=" …")
    notes = [(min(breach.at if breach.at >= 0 else last, last), label)]
    try:
        tracing.timeline(tracing.load(folder), notes=notes).savefig(path.with_suffix(".png"), dpi=110)
    except ValueError:  # nothing to draw: it failed before there was a loader
        return
    found.picture = str(path.with_suffix(".png"))


class Standstill(Schedule):
    """Records, whenever no thread can go on, in which line of a file each is."""

    def __init__(self, token: str, path: Path) -> None:
        super().__init__(parse(token).moves)
        self.path, self.lines = str(path), dict[str, int]()  # "main", "worker 0", or another thread's name -> line

    def choose(self, machine: Any) -> Any:
        chosen = super().choose(machine)
        if chosen is None:
            own = sys._getframe()  # of the running thread: its greenlet has none
            frames = [(each, each.greenlet.gr_frame or own) for each in machine.threads if each.alive]
            found = {_name(each): self._line(frame) for each, frame in frames}
            self.lines = {name: line for name, line in found.items() if line}
        return chosen

    def _line(self, frame: Any) -> int:
        """The innermost line of the file on a stack; 0: none."""
        while frame is not None and frame.f_code.co_filename != self.path:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0


def _name(thread: Any) -> str:
    return str(thread.name if thread is not thread.process.threads[0] else thread.process.name.removeprefix("minidl "))


def _lines_that_wait(outcome: Outcome, path: Path) -> list[str]:
    """Of a run that deadlocks: "main waits in line 32 of 13_shutdown.py: worker.join()", and what waits for what."""
    import tracing
    from tracing.analysis.hang.explain import explain

    schedule = Standstill(outcome.token, path)
    simulate(outcome.program, schedule=schedule, **outcome.options)
    lines = {name: linecache.getline(str(path), line).strip() for name, line in schedule.lines.items()}
    own = [f"{name} waits in line {schedule.lines[name]} of {path.name}: {text}" for name, text in lines.items()]
    text = str(explain(tracing.load(outcome)) or "")
    kept = [line for line in text.splitlines()[1:] if line.strip() and line.split()[0] not in ("Why", "Next", "Beside")]
    short = [re.sub(r": for [^,:]+, since [^[]+", " ", line).strip() for line in kept]
    return own + [line for line in short if line.partition(" (pid")[0] not in lines]


class Steps(Schedule):
    """Counts the steps that a run has taken when it emits an event."""

    def __init__(self, token: str, event: int) -> None:
        super().__init__(parse(token).moves)
        self.event, self.taken = event, 0

    def choose(self, machine: Any) -> Any:
        if not self.taken and len(machine.outcome.events) > self.event:
            self.taken = machine.step - 1
        return super().choose(machine)


def _cut(outcome: Outcome) -> Outcome:
    """The same run up to its first long wait: in a picture of seconds the microseconds that matter would be invisible.
    Only of a run that never ends."""
    last = _long_wait(outcome)
    if last is None or not (outcome.deadlock or outcome.endless):
        return outcome
    steps = Steps(outcome.token, last)
    simulate(outcome.program, schedule=steps, **outcome.options)
    return simulate(outcome.program, schedule=outcome.token, **{**outcome.options, "most_steps": steps.taken})


def _long_wait(outcome: Outcome) -> int | None:
    """The event before its first wait of about a second or more."""
    times = [event[0] for event in outcome.events]
    return next((k for k in range(len(times) - 1) if times[k + 1] - times[k] >= SECOND // 2), None)


# ---- where it leaves the way of minidl's own functions


def _replaced(answer: Answer, outcome: Outcome) -> dict[str, Any]:
    """What a trace of this run has as `replaced`: see tracing.trace.trace. The answer must not be at work.

    Compared are the events that no function of the exercise emits: an answer may leave those out. A place counts only
    if the same thread goes on there in both runs: if another does, the answer has only taken more steps, or fewer."""
    functions = [reference.rpartition(":")[2] for reference in answer.functions]
    silent = {
        int(Kind[name])
        for name, sites in emit_sites().items()
        if any(_is_of(site.function, functions) for site in sites)
    }
    own = simulate(outcome.program, schedule=outcome.token, **outcome.options)
    ours, theirs = _comparable(outcome, silent), _comparable(own, silent)
    at, instead = -1, ""
    for (position, event), (there, other) in zip(ours, theirs, strict=False):
        if event != other:
            if event[0] == other[0]:
                at, instead = position, _in_words(own, there)
            break
    text = answer.path.read_text(encoding="utf-8")
    return {"file": answer.path.name, "text": text, "functions": functions, "departs": at, "instead": instead}


def _is_of(function: str, functions: list[str]) -> bool:
    return function in functions or function == "joined"  # which the text allows to leave out, too


def _comparable(outcome: Outcome, silent: set[int]) -> list[tuple[int, tuple[Any, ...]]]:
    """(position, what must be the same) of each event. Times are not compared, nor CPU times."""
    found = []
    for position, event in enumerate(outcome.events):
        _, thread, kind, epoch, task, worker, queue, value = event[:8]
        if kind not in silent:
            kept = 0 if kind < CLOCKED else value
            found.append((position, (outcome.threads[thread], kind, epoch, task, worker, queue, kept)))
    return found


def _in_words(outcome: Outcome, position: int) -> str:
    event: Any = dict(zip(FIELDS, outcome.events[position][:8], strict=True))
    said = sentence(event)
    batch = "" if said.batch is None else f"batch {said.batch}" if isinstance(said.batch, int) else str(said.batch)
    name = outcome.threads[event["thread"]][1].replace("MainThread", "main")
    return f"there {name} {said.before}{batch}{said.after}"
