"""Exercise 15: name the bug."""

from __future__ import annotations

import textwrap
from typing import Any

from notebooks.exercises import bugs
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import short
from notebooks.exercises.catalogue.bug_evidence import EVIDENCE
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.protocol import Run

EXPECTED = "a name that nothing in the trace contradicts"


def text(solved: bool) -> str:
    """The file below its docstring; when solved, with the lesson of each trace."""
    lines = ["ANSWERS = {"]
    for letter, name in bugs.TRACES.items():
        if solved:
            lesson = " ".join(bugs.mutant(name).lesson.split())
            lines += textwrap.wrap(lesson, 100, initial_indent="    # ", subsequent_indent="    # ")
        lines.append(f'    "{letter}": "{name if solved else ""}",')
    names = [f"#   {name}" for name in bugs.NAMES]
    return "\n".join([*lines, "}", "", "# The names. Some belong to none of the traces.", *names, ""])


def grade(answer: Answer) -> Finding | None:
    answers = answer.names.get("ANSWERS")
    form = _form(answers)
    if form is not None:
        return form
    assert isinstance(answers, dict)
    wrong = [each for each in bugs.TRACES if answers[each] and answers[each] != bugs.TRACES[each]]
    empty = [each for each in bugs.TRACES if not answers[each]]
    if wrong:
        finding = _against(answer, wrong[0], answers[wrong[0]])
        finding.seen += [f"wrong, too: {', '.join(wrong[1:])}"] * bool(wrong[1:])
        finding.seen += [f"still to name: {', '.join(empty)}"] * bool(empty)
        return finding
    if empty:
        right = f"right so far: {', '.join(each for each in bugs.TRACES if answers[each]) or 'none'}"
        cause = f"Look at a trace with `python -m tracing step`; {bugs.COMMAND} writes them."
        got = f"no name for {', '.join(empty)}"
        return Finding("still to name", "ANSWERS", got, "a name for each", cause, seen=[right])
    return None


def _against(answer: Answer, letter: str, name: str) -> Finding:
    """What in this trace contradicts a wrong name. The right name is not given away."""
    beat(f"the run of trace {letter}")
    reason = EVIDENCE[name].against(Run(bugs.outcome(letter)))
    assert reason, f"nothing in trace {letter} contradicts {name!r}"
    path = answer.path.parent / bugs.FOLDER / f"{letter}.trace"
    where = f"python -m tracing step {path} -o {letter}.html" if path.exists() else f"write the traces: {bugs.COMMAND}"
    cause = f"That bug would show like this: {EVIDENCE[name].shows}."
    call = f'ANSWERS["{letter}"] = "{name}"'
    return Finding(f"trace {letter}: not {name}", call, reason, EXPECTED, cause, seen=[where])


def _form(answers: Any) -> Finding | None:
    """A finding, if the answers are not a dict of names."""
    letters = list(bugs.TRACES)
    if not isinstance(answers, dict) or sorted(answers, key=str) != letters:
        got = "no ANSWERS" if answers is None else short(answers)
        cause = "Keep the skeleton's dict, and write a name beside each letter."
        return Finding("no dict of answers", "ANSWERS", got, f"a dict with the keys {', '.join(letters)}", cause)
    for letter, name in answers.items():
        if name and name not in bugs.NAMES:
            cause = "Copy one of the names at the end of the file exactly."
            return Finding("not one of the names", f'ANSWERS["{letter}"]', short(name), "one of the names", cause)
    return None


EXERCISE = Exercise(
    number=15,
    name="name_the_bug",
    title="name the bug",
    references=(),
    text=text,
    task=f"""
    Each of eight loaders has a bug that real loaders have had, and each has left a trace. Name the bugs.

    `{bugs.COMMAND}` writes the traces into a folder beside this file, {bugs.FOLDER}: a.trace to h.trace, and a timeline
    of each, a.png to h.png. Each is a run in the simulated world, the same every time. Look at them with
    `python -m tracing step a.trace -o a.html`, `python -m tracing sequence a.trace -o a.svg`, or in Python:
    tracing.load("a.trace").events.

    Write a name from the list below beside each letter. For a wrong name, the check shows what in the trace contradicts
    it, and the event to look at. You need not fill in all of them before you check.
    """,
    legend={},
    hints=(
        "Begin at the end: what is the last event of main, and of each worker? Read the trace of a hanging run "
        "backwards from there. Then: how many epochs are there, and is there a shutdown, an error, a pin thread?",
        "If the run ended, compare it with how it should be: which worker gets task 0 of each epoch; what comes "
        "between RECEIVED and YIELDED; the order of the shutdown's steps (notebook 10).",
        "Look for these. RESUME_ACKNOWLEDGED: did the worker emit WORKER_RESUMED before? DISPATCHED: is it followed "
        "by YIELDED? DONE_SET: is a Stop put on each index_queue after it, and does the pin thread still run? "
        "WORKER_EXHAUSTED: what happens to that worker later? HEALTH_CHECK: why does main check, and what does it "
        "find? YIELDED as main's last event: were the workers told?",
    ),
    grade=grade,
    notebook="10-shutting-down.ipynb",
    protocol=True,
)
