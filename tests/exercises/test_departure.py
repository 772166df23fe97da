"""A failing run can be stepped through: with the learner's own lines, and where it leaves minidl's way."""

from __future__ import annotations

import pytest

import tracing
from minidl.events import Kind, Queue
from minidl.world.simulated import simulate
from notebooks.exercises.answers import read
from notebooks.exercises.departure import departure
from notebooks.exercises.exercise import exercise
from notebooks.exercises.grading import grade
from notebooks.exercises.programs import Keys, load
from tests.exercises.wrong.edits import solved, without_emit, wrong_answers
from tracing.views.step_through.source_code import EmittingLines

WHICH = exercise("07")
NO_BUFFER = wrong_answers()["07"]["no_buffer"]


def written(folder, text):
    path = folder / WHICH.file
    path.write_text(text, encoding="utf-8")
    return path


def with_emit(wrong):
    """The wrong answer, with its calls of emit."""
    text = solved(WHICH, **wrong.bodies)
    for old, new in wrong.edits:
        text = text.replace(old, new)
    return text


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", [with_emit(NO_BUFFER), NO_BUFFER.text(WHICH)], ids=["with emit", "without"])
def test_the_first_event_that_differs_is_marked(text, tmp_path):
    path = written(tmp_path, text)
    verdict = grade(WHICH, path)
    trace = tracing.load(path.with_suffix(".trace"))
    at = trace.replaced["departs"]
    # Batch 1 is there, and batch 0 is not: the answer goes on to hand it out, minidl's functions wait for the next.
    wrong = next(k for k, event in enumerate(trace.events) if event["kind"] == Kind.YIELDED)
    assert trace.events[wrong]["task"] == 1 and 0 < at <= wrong
    assert trace.actors[trace.events[at]["actor"]].role == "main"
    assert trace.replaced["instead"].startswith("there main ")
    assert f"Event {at} is the first" in verdict.finding.seen[-1]
    page = str(tracing.step(trace))
    assert f'"departs":[{at}]' in page and "here minidl's own functions go another way: there main" in page


@pytest.mark.timeout(60)
def test_the_step_through_shows_the_learners_lines(tmp_path):
    text = with_emit(NO_BUFFER)
    path = written(tmp_path, text)
    grade(WHICH, path)
    trace = tracing.load(path.with_suffix(".trace"))
    code = EmittingLines(trace.sources, trace.replaced)
    file, line, source = code.line(code.site(Kind.RECEIVED, Queue.NONE))
    assert file == WHICH.file and source.startswith("emit(RECEIVED") and text.splitlines()[line - 1].strip() == source
    assert code.line(code.site(Kind.YIELDED, Queue.NONE))[0].startswith("minidl/")  # not a function of this exercise
    path.write_text("# edited since", encoding="utf-8")
    assert f'"file":"{WHICH.file}","name":"ParallelIterator._receive"' in str(tracing.step(trace))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("change", [str, without_emit], ids=["with emit", "without"])
def test_a_right_answer_departs_nowhere(change, tmp_path):
    answer = read(WHICH, written(tmp_path, change(solved(WHICH))))
    with answer.at_work():
        outcome = simulate(lambda: load(Keys(8), 2, num_workers=2), draws=False)
    assert len(outcome.events) > 100 and departure(answer, outcome)["departs"] == -1
