"""The judge is judged: references pass, skeletons count as not attempted, each known mistake fails with its own cause,
and right answers of another shape pass."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest

import tracing
from minidl.world.simulated import explore_by_chance
from notebooks.exercises import diagnose, explained, judge
from notebooks.exercises.exercise import TEXTS, exercise, exercises, known
from notebooks.exercises.explained import described
from notebooks.exercises.judge import BY_NAME, OF
from notebooks.exercises.laws import LAWS
from notebooks.exercises.runner import grade, judged
from notebooks.exercises.skeleton import edited, generate, without_emit
from notebooks.exercises.verdict import Status
from tests.exercises.right import RIGHT

ALL = list(exercises().values())
full = pytest.mark.full
SOME = 4  # known mistakes of an exercise that are tried each time; the rest by `make full`


@pytest.fixture(autouse=True)
def given_once(monkeypatch):
    """What minidl's own functions make of a simulated program is found once, and not anew for each answer."""
    monkeypatch.setattr(judge, "given", lambda program: given(program) if program.alone else known_of(program.name))


given = judge.given
known_of = functools.cache(lambda name: given(BY_NAME[name]))


@pytest.fixture
def grade_text(tmp_path):
    """A function that grades an answer with this text: in this process, where that is quick, or in one of its own."""

    def graded(which, text, how=judged):
        path = tmp_path / which.file
        path.write_text(text, encoding="utf-8")
        return how(which, path)

    return graded


def mistakes() -> Iterator[Any]:
    for number in exercises():
        for k, name in enumerate(known(number)):
            yield pytest.param(number, name, id=f"{number}-{name}", marks=[full] * (k % 20 >= SOME))


@pytest.fixture(params=[2, pytest.param(1000, marks=full)])
def some_by_chance(request, monkeypatch):
    """Each time as many of the random schedules of a program, at most."""

    def some(run, chance, **others):
        return explore_by_chance(run, min(request.param, chance), **others)

    monkeypatch.setattr(judge, "explore_by_chance", some)


@pytest.mark.usefixtures("some_by_chance")
@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_the_reference_passes(which, grade_text):
    verdict = grade_text(which, generate(which, solved=True), judged if which.references else grade)
    assert verdict.passed, verdict
    assert verdict.reference


@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_a_skeleton_counts_as_not_attempted(which, grade_text):
    assert grade_text(which, generate(which)).status is Status.NOT_ATTEMPTED


@pytest.mark.parametrize(("number", "name"), list(mistakes()))
def test_a_known_mistake_fails_with_its_own_cause(number, name, grade_text, request, monkeypatch):
    if name != next(iter(known(number))) and not request.node.get_closest_marker("full"):
        monkeypatch.setattr(explained, "_write", lambda *run: None)  # a timeline, which takes longer than all else
    which, edit = exercise(number), known(number)[name]
    never_returns = edit.mistake == diagnose.ENDLESS
    verdict = grade_text(which, edited(which, edit), judged if which.references and not never_returns else grade)
    assert verdict.status is Status.FAILED, verdict
    assert verdict.finding.mistake == edit.mistake, verdict
    if which.references:  # else it was measured, and the cause is what the report of that run advises
        assert verdict.finding.cause == which.causes.get(edit.mistake, verdict.finding.cause)


@pytest.mark.usefixtures("some_by_chance")
@pytest.mark.parametrize(("number", "name"), [(number, name) for number in RIGHT for name in RIGHT[number]])
def test_a_right_answer_of_another_shape_passes(number, name, grade_text):
    which = exercise(number)
    verdict = grade_text(which, RIGHT[number][name](which))
    assert verdict.passed, verdict


# ---- texts


@pytest.mark.parametrize("which", ALL, ids=lambda each: each.id)
def test_each_exercise_has_three_hints_and_a_cause_for_each_known_mistake(which):
    assert len(set(which.hints)) == 3 and all(which.hints)
    found = {each.mistake for each in known(which.id).values()}
    assert len(found) >= 3
    if which.references:
        assert found - set(which.causes) <= {diagnose.ENDLESS}
        assert set(which.causes) <= found, "a section that no edit leads to"


@pytest.mark.parametrize("number", [number for number in exercises() if exercise(number).references])
def test_the_table_knows_every_mistake(number):
    its = diagnose.table()[number]
    endless = {name for name, edit in known(number).items() if edit.mistake == diagnose.ENDLESS}
    assert set(its) == set(known(number)) - endless, "run python -m notebooks.exercises.diagnose"
    assert all(its.values())


@pytest.mark.parametrize("number", diagnose.table())
def test_the_table_tells_the_known_mistakes_apart(number):
    for name, keys in diagnose.table()[number].items():
        assert diagnose.nearest(exercise(number), keys) == known(number)[name].mistake, name


@full
@pytest.mark.parametrize("number", [number for number in exercises() if exercise(number).references])
def test_the_table_is_what_is_generated(number):
    for name, keys in diagnose.table()[number].items():
        assert diagnose.fails(exercise(number), name) == keys, name


def test_each_program_and_each_law_is_described():
    text = described()
    for name in {name for names in OF.values() for name in names if not re.match("(grant|fill|forty steps)", name)}:
        assert all(text[name]), name
        assert name in BY_NAME
    laws = set(re.findall(r'Breach\(\s*"([a-z ]+)"', (TEXTS.parent / "laws.py").read_text()))
    laws |= set(re.findall(r'Breach\(\s*"([a-z ]+)"', (TEXTS.parent / "judge.py").read_text()))
    assert len(laws) >= len(LAWS)
    assert all(f"law: {each}" in text for each in laws - {"slots"}), laws


# ---- found from outside


def finding_of(grade_text, number, *changes):
    which = exercise(number)
    text = without_emit(generate(which, solved=True))
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return grade_text(which, text).finding


def test_a_result_that_is_made_anew_loses_what_else_it_carries(grade_text):
    new = "Result(epoch_id, task_id, worker_id, pin_batch(result.data, device, epoch_id, task_id, worker_id))"
    old = "replace(result, data=pin_batch(result.data, device, epoch_id, task_id, worker_id))"
    assert finding_of(grade_text, "10", (old, new)).mistake == "a new Result"


def test_system_exit_in_pin_memory_must_not_end_the_training(grade_text):
    which = exercise("10")
    text = without_emit(generate(which, solved=True)).replace(
        "except Exception as error:\n        pass", "except BaseException:\n        pass"
    )
    assert "BaseException" in text
    finding = grade_text(which, text).finding
    assert finding.mistake == "SystemExit travels to main" and "SystemExit" in finding.got


def test_the_world_is_read_before_the_guard(grade_text):
    guard = "iterator._shutdown or iterator._world.pid() != iterator._owner_pid"
    finding = finding_of(
        grade_text, "13", (guard, "iterator._world.pid() != iterator._owner_pid or iterator._shutdown")
    )
    assert finding.mistake == "the fields are not there yet" and "constructor" in finding.cause


@pytest.mark.parametrize(
    ("number", "name"), [("13", "no_wait"), ("06", "no_resume"), ("07", "keeps"), ("11", "first_one")]
)
def test_an_event_is_pointed_at_only_where_the_answer_does_something_else(number, name, grade_text, tmp_path):
    """Each leaves out all calls of emit. What its functions would have emitted is no difference."""
    which = exercise(number)
    grade_text(which, edited(which, known(number)[name]))
    trace = tracing.load((tmp_path / which.file).with_suffix(".trace"))
    at = trace.about["replaced"]["departs"]
    if at >= 0:
        actor = trace.actors[trace.events[at]["actor"]].role
        assert actor in ("main", "worker") and "there " in trace.about["replaced"]["instead"]


def test_what_is_expected_is_what_was_expected_there(grade_text):
    expected = set()
    for name in ("keeps", "no_buffer", "sends_nothing", "never_looks", "no_count_of_worker"):
        which = exercise("07")
        expected.add(grade_text(which, edited(which, known("07")[name])).finding.expected)
    assert len(expected) >= 4, expected


def test_the_mistakes_of_the_shutdown_have_causes_of_their_own():
    causes = exercise("13").causes
    assert len(set(causes.values())) == len(causes) >= 12


def test_the_message_that_killed_the_pin_thread_is_named(grade_text):
    """Pinning batch 1 raises; batches 2 and 3 are messages that the thread never came to."""
    which = exercise("10")
    finding = grade_text(which, edited(which, known("10")["no_try"])).finding
    assert finding.mistake == "an exception kills the thread" and "for batch 1, keys [1]" in finding.got, finding
