"""The examination: cheats do not pass it, and what the exercise asks for is not to be found where it takes place."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path

import pytest

from notebooks.exercises import exam_programs, exam_questions, examination
from notebooks.exercises.exercise import exercise, exercises
from notebooks.exercises.grading import grade
from notebooks.exercises.skeleton import generate
from notebooks.exercises.verdict import Status, plain, understood
from tests.exercises.cheats import CHEATS, FETCH, FIND, FOUND_BY_GC, cheating
from tests.exercises.wrong.edits import solved

ROOT = Path(__file__).parents[2]


def graded(number: str, text: str, folder: Path):
    path = folder / exercise(number).file
    path.write_text(text, encoding="utf-8")
    return grade(exercise(number), path)


# Each time, each kept from it in another way; the others by `make full`.
TRIED = (
    *("no judge", "its own verdict", "right only where it is graded", "torch's"),
    "the names of the bugs, from another Python",
)


@pytest.mark.timeout(110)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name not in TRIED)) for name in CHEATS]
)
def test_a_cheat_passes_its_own_judge_and_not_the_examination(name, tmp_path):
    verdict = graded(*cheating(name), tmp_path)
    assert verdict.status is Status.FAILED
    assert verdict.finding.mistake == "the examination", verdict


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.timeout(60)
def test_what_an_answer_writes_into_the_connection_is_not_unpickled(tmp_path):
    made = tmp_path / "made"
    send = FOUND_BY_GC.format(send=f"each.send_bytes({pickle.dumps(Bomb(made))!r})")
    text = solved(exercise("01"), fetch=FETCH).replace("from typing", f"import sys\n{FIND}{send}\nfrom typing", 1)
    assert graded("01", text, tmp_path).finding.mistake == "speaks for the grader"
    assert not made.exists()


@pytest.mark.parametrize(
    "found",
    [
        None,
        {"status": "passed"},
        {"status": "excellent", "missing": ""},
        {"status": "passed", "missing": 3},
        {"status": "failed", "missing": "", "finding": {"mistake": "x"}},
        {"status": "failed", "missing": "", "finding": [1]},
    ],
)
def test_what_is_no_verdict_is_not_understood(found, tmp_path):
    with pytest.raises(ValueError, match=r"."):
        understood(found, "01", tmp_path / "x.py")


@pytest.mark.timeout(60)
def test_a_verdict_with_a_run_comes_through_as_plain_data(tmp_path):
    from tests.exercises.wrong.edits import wrong_answers

    verdict = graded("11", wrong_answers()["11"]["active_at_last"].text(exercise("11")), tmp_path)
    path = tmp_path / exercise("11").file
    again = understood(json.loads(json.dumps(plain(verdict))), "11", path)
    assert again.finding.broken.picture == path.with_suffix(".png") and again.finding.seen == verdict.finding.seen
    assert plain(again) == plain(verdict)


# What is searched for is in the reference of exercise 12, and nowhere else in minidl. (torch has it, too.)
SEARCH = """
def search():
    modules = vars(sys)["modules"]
    minidl = modules["minidl"]
    gc, inspect = modules["gc"], modules["inspect"]
    mark, found = " ".join(["Pin", "memory", "thread", "exited", "unexpectedly"]), []
    gc.unfreeze()
    for each in gc.get_objects():
        code = getattr(each, "__" + "code__") if type(each) is type(search) else None
        if code is not None and mark in code.co_consts and "torch" not in code.co_filename:
            found.append("an object")
    for name in ("check_health", "worker_ended"):
        if mark in inspect.getsource(vars(modules["minidl.deaths"])[name]):
            found.append("its source")
    root = {root!r}
    folders = [os.path.dirname(minidl.__file__), os.getcwd()]
    for folder, _, names in [each for top in folders if top != root for each in os.walk(top)]:
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                if mark.encode() in file.read() and path != __file__:
                    found.append("a file next to it")
    found += ["a module: " + name for name in modules if name.split(".")[0] in ("notebooks", "tests", "tracing")]
    found += ["a path" for path in sys.path if os.path.exists(os.path.join(path, "tests", "exercises"))]
    found += ["the current folder"] * os.getcwd().startswith(root) + ["an argument"] * (root in str(sys.argv))
    found += ["a variable: " + name for name, value in os.environ.items() if root in value]
    with open({log!r}, "a") as file:
        print(sorted(set(found)), file=file)
search()
"""


@pytest.mark.timeout(60)
def test_the_examinee_can_find_neither_the_reference_nor_the_grader(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIDL_ANSWERS", str(ROOT))
    log = tmp_path / "found"
    search = SEARCH.replace("{root!r}", repr(str(ROOT))).replace("{log!r}", repr(str(log)))
    head, line, rest = generate(exercise("12"), solved=True).partition("from __future__ import annotations\n")
    verdict = graded("12", f"{head}{line}\nimport os\nimport sys\n{search}\n{rest}", tmp_path)
    assert verdict.passed, verdict
    judge, examination = log.read_text().splitlines()
    for there in ("an object", "its source", "a file next to it", "a module: notebooks"):
        assert there in judge  # this is how it would be found
    assert examination == "[]"


def test_each_exercise_is_examined():
    assert [f"{number:02}" for number in exam_questions.ASKED] == list(exercises())


@pytest.mark.parametrize("number", exam_questions.ASKED)
def test_each_exercise_is_asked_what_can_be_run_and_sent(number):
    for seed in range(20):
        questions = exam_questions.drawn(number, random.Random(seed))
        assert questions and all(each.program in exam_programs.PROGRAMS for each in questions)
        assert all(json.loads(json.dumps(each.args)) == each.args for each in questions)


@pytest.mark.timeout(60)
def test_slots_are_judged_from_what_was_granted():
    steps = exam_questions._steps(random.Random(1))
    granted = examination._with_minidls_own([exam_questions.Question("slots", {"steps": steps, "most": 3})])[0]
    assert exam_questions._replayed(steps, granted) is None
    wrong = [[0, False] if isinstance(each, list) else each for each in granted]
    for forged in (wrong, [], None, granted[:-1], [*granted[:-1], "x"]):
        assert exam_questions._replayed(steps, forged) is not None
