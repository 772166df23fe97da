"""The graders are graded: references pass, skeletons count as not attempted, and each wrong answer of
tests/exercises/wrong fails with its own message."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from notebooks.exercises.exercise import exercise, exercises
from notebooks.exercises.grading import grade
from notebooks.exercises.skeleton import generate
from notebooks.exercises.verdict import Status
from tests.exercises.wrong.e03_batch_sampler import LOOP
from tests.exercises.wrong.e16_free_list import IN_TURNS
from tests.exercises.wrong.edits import solved, without_emit, wrong_answers

ALL = list(exercises().values())
# The wrong answers that are tried each time, each found in another way; the rest by `make full`. Those to exercises
# that are not here are quickly graded: all are tried.
TRIED = {
    "05": "no_entry turn_by_one", "06": "misspelt no_batch looks_for_ctrl_c_too_late",
    "07": "never_looks its_own_timeout", "08": "leaks looks_at_one", "09": "skips_one empty_batch",
    "10": "no_task gives_up_pinning", "11": "first_one old_answers", "12": "nameless by_exit_code",
    "13": "no_close only_ctrl_c", "14": "callers_thread stays_open", "16": "by_turns waits fresh_once",
    "17": "caches one_worker own_read",
}  # fmt: skip
full, slow = pytest.mark.full, pytest.mark.slow


def wrong() -> Iterator[Any]:
    for number, named in wrong_answers().items():
        tried = TRIED.get(number, " ".join(named)).split()
        assert set(tried) <= set(named)
        for name in named:
            marks = [*[slow] * (number in TRIED), *[full] * (name not in tried)]
            yield pytest.param(number, name, id=f"{number}-{name}", marks=marks)


def all_but(kept: str) -> list[Any]:
    """The exercises in which calls of `emit` may be left out; all but these for `make full`."""
    of_events = [each for each in ALL if each.protocol]
    return [pytest.param(each, id=each.id, marks=[full] * (each.id not in kept.split())) for each in of_events]


@pytest.fixture
def grade_text(tmp_path):
    """A function that grades an answer with this text."""

    def graded(which, text):
        path = tmp_path / which.file
        path.write_text(text, encoding="utf-8")
        return grade(which, path)

    return graded


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_the_reference_passes(which, grade_text):
    verdict = grade_text(which, generate(which, solved=True))
    assert verdict.status is Status.PASSED, verdict


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("which", all_but("08 14"))  # the wrong answers, and others that are right, do without, too
def test_the_reference_passes_without_its_calls_of_emit(which, grade_text):
    verdict = grade_text(which, without_emit(generate(which, solved=True)))
    assert verdict.status is Status.PASSED, verdict


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("number", "bodies"),
    [
        pytest.param("03", {"__iter__": LOOP}, id="03"),
        pytest.param("16", IN_TURNS, id="16"),
    ],
)
def test_another_right_answer_passes(grade_text, number, bodies):
    verdict = grade_text(exercise(number), without_emit(solved(exercise(number), **bodies)))
    assert verdict.status is Status.PASSED, verdict


@pytest.mark.full
@pytest.mark.timeout(60)
def test_a_worker_loop_that_knows_nothing_of_slots_passes(grade_text):
    """It is not what the exercise asks: each batch then has memory of its own."""
    which = exercise("06")
    text = solved(which).replace("room = self.transport.room(message.slot, message.fresh)", "room = None")
    assert grade_text(which, without_emit(text)).status is Status.PASSED


DEAD_AT_ONCE = """
    ended = [k for k, each in enumerate(iterator._workers) if not each.is_alive()]
    lost = [k for k in ended if iterator._workers_status[k] is WorkerState.ACTIVE]
    for worker_id in lost:
        iterator._endings.remove(iterator._ending_of[worker_id])
        iterator._workers_status[worker_id] = WorkerState.DEAD
    if lost:
        fail_for_death(iterator, lost[0])
    if iterator._pin_memory_thread is not None and not iterator._pin_memory_thread.is_alive():
        fail(iterator, "Pin memory thread exited unexpectedly")
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_all_that_have_died_may_be_noted_at_once(grade_text):
    which = exercise("12")
    assert grade_text(which, without_emit(solved(which, check_health=DEAD_AT_ONCE))).status is Status.PASSED


DATACLASS = """from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Share:
    worker_id: int
"""


LAST_OF_ALL = """
    import contextlib

    before, iterator._workers_status[worker_id] = iterator._workers_status[worker_id], WorkerState.DEAD
    with contextlib.ExitStack() as last:
        if before is WorkerState.ACTIVE:
            last.callback(fail_for_death, iterator, worker_id)
        iterator._endings.remove(iterator._ending_of[worker_id])
"""


@pytest.mark.full
@pytest.mark.timeout(60)
def test_an_answer_may_leave_the_iterator_to_the_garbage_collection(grade_text):
    """ExitStack's frame and the exception that leaves it refer to each other."""
    which = exercise("12")
    verdict = grade_text(which, solved(which, worker_ended=LAST_OF_ALL))
    assert verdict.status is Status.PASSED, verdict


@pytest.mark.timeout(60)
def test_an_answer_may_define_a_dataclass(grade_text):
    """Its module must be in sys.modules then: dataclasses looks up annotations there."""
    which = exercise("01")
    text = solved(which).replace("from __future__ import annotations\n", DATACLASS)
    assert "class Share" in text and grade_text(which, text).status is Status.PASSED


HELPER = """
    def {name}(self):
        return self._next_worker

    def _choose_worker"""


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_an_answer_may_have_methods_of_its_own(grade_text):
    which = exercise("05")
    text = solved(which).replace("worker_id = self._next_worker", "worker_id = self._whose_turn()")
    assert "_whose_turn" in text
    text = text.replace("\n    def _choose_worker", HELPER.format(name="_whose_turn"))
    verdict = grade_text(which, without_emit(text))
    assert verdict.status is Status.PASSED, verdict


def test_a_method_of_its_own_must_not_replace_one_of_minidls(grade_text):
    which = exercise("05")
    verdict = grade_text(which, solved(which).replace("\n    def _choose_worker", HELPER.format(name="_receive")))
    assert verdict.finding.mistake == "name is taken" and "choose another name" in verdict.finding.cause


@pytest.mark.timeout(60)
@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_a_skeleton_counts_as_not_attempted(which, grade_text):
    assert grade_text(which, which.skeleton.read_text(encoding="utf-8")).status is Status.NOT_ATTEMPTED


@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_the_skeleton_is_what_is_generated(which):
    assert which.skeleton.read_text(encoding="utf-8") == generate(which)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("number", "name"), list(wrong()))
def test_a_wrong_answer_fails_with_its_own_message(number, name, grade_text):
    which, wrong = exercise(number), wrong_answers()[number][name]
    verdict = grade_text(which, wrong.text(which))
    assert verdict.status is Status.FAILED, verdict
    assert verdict.finding.mistake == wrong.mistake, verdict


@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_each_exercise_has_three_hints_and_three_wrong_answers(which):
    assert len(set(which.hints)) == 3 and all(which.hints)
    assert len(wrong_answers()[which.id]) >= 3


def test_no_message_is_cut_by_a_missing_bracket():
    """Of a text in two lines without brackets around it the second is a statement of its own, and nobody reads it."""
    for path in (Path(__file__).parents[2] / "notebooks" / "exercises").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for body in (getattr(node, "body", []), getattr(node, "orelse", [])):
                later = body[1:] if isinstance(body, list) else []
                texts = [each.value for each in later if isinstance(each, ast.Expr)]
                assert not [each for each in texts if isinstance(each, ast.Constant) and each.value != ...], path
