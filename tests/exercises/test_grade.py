"""`grade`: a class at a time. What it writes, that answers cannot touch each other, and that nothing is left."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from notebooks.exercises import __main__ as commands
from notebooks.exercises.exercise import exercise, exercises
from notebooks.exercises.same_answers import outline, same
from notebooks.exercises.skeleton import generate
from tests.exercises.wrong.edits import solved

ROOT = Path(__file__).parents[2]
FIRST = exercise("01")
LOOKS_RIGHT = "return self.dataset[keys]"


def hand_in(folder: Path, text: str, which=FIRST) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / which.file).write_text(text, encoding="utf-8")
    return folder


def first(body: str, head: str = "") -> str:
    """The text of an answer to exercise 1 with this body."""
    return solved(FIRST, fetch=body).replace("from typing", f"{head}\nfrom typing", 1)


@pytest.fixture
def two(monkeypatch):
    """The first two exercises only."""
    some = dict(list(exercises().items())[:2])
    for module in ("grade_table", "class_run"):
        monkeypatch.setattr(f"notebooks.exercises.{module}.exercises", lambda: some)
    return some


def graded(*arguments, capsys) -> tuple[list[list[str]], str]:
    assert commands.main(["grade", *map(str, arguments)]) == 0
    captured = capsys.readouterr()
    return list(csv.reader(io.StringIO(captured.out))), captured.err


@pytest.mark.slow
@pytest.mark.timeout(110)
def test_the_table_and_the_summary_of_a_class(two, tmp_path, capsys):
    hand_in(tmp_path / "first learner", first("return [self.dataset[keys]]"))
    hand_in(tmp_path / "second" / "notebooks" / "exercises" / "answers", generate(FIRST, solved=True))
    hand_in(tmp_path / "third", first("return [self.dataset[keys]]"))
    (tmp_path / "nothing").mkdir()
    (tmp_path / "notes.txt").write_text("of the teacher")
    before = sorted(tmp_path.rglob("*"))
    (header, *rows), err = graded(*sorted(tmp_path.iterdir()), "--jobs", 2, capsys=capsys)
    assert header == ["learner", "passed", *two, *(f"{each} message" for each in two)]
    assert [row[:4] for row in rows] == [
        ["first learner", "0", "one sample in a list", "not attempted"],
        ["nothing", "0", "not attempted", "not attempted"],
        ["second", "1", "passed", "not attempted"],
        ["third", "0", "one sample in a list", "not attempted"],
    ]
    assert rows[0][4].startswith("fetch(3), without automatic batching: [9]; expected: 9. ") and not rows[2][4]
    assert "notes.txt is not a folder: left out" in err and "nothing: no exercises in it" in err
    assert "[3/3]" in err and "3 answers: 1 passed, 2 failed" in err
    assert "  2  01 the map fetcher's fetch: one sample in a list" in err and "(first learner, third)" in err
    assert sorted(tmp_path.rglob("*")) == before


SPOILS = """
here = os.getcwd()
assert os.listdir(here) == ["01_map_fetcher.py"], here
for folder in {folders!r}:
    open(folder + "/01_map_fetcher.py", "w").write("spoilt")
open("left", "w").write("in its own folder")
return [self.dataset[keys]]"""


@pytest.mark.timeout(110)
def test_an_answer_cannot_change_another_or_what_was_handed_in_before(two, tmp_path, capsys):
    folders = [str(tmp_path / name) for name in ("ada", "bob")]
    hand_in(tmp_path / "ada", first(SPOILS.format(folders=folders).strip(), "import os"))
    hand_in(tmp_path / "bob", generate(FIRST, solved=True))
    rows, _ = graded(*folders, "--jobs", 1, capsys=capsys)
    assert [row[2] for row in rows[1:]] == ["one sample in a list", "passed"]
    assert not list(ROOT.glob("left")) and not (tmp_path / "ada" / "left").exists()


DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open({pid!r}, "w").write(str(os.getpid()))
        time.sleep(1000)
    os._exit(0)
while not os.path.exists({pid!r}) or not open({pid!r}).read():
    time.sleep(0.01)
{then}"""


@pytest.mark.timeout(110)
@pytest.mark.parametrize("then", [LOOKS_RIGHT, "os._exit(0)", "os.closerange(3, 99); time.sleep(1000)"])
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody adopts a daemon")
@pytest.mark.usefixtures("impatient")
def test_a_daemon_is_ended_with_its_answer(then, two, tmp_path, capsys):
    pid = tmp_path / "pid"
    text = DAEMON.format(pid=str(pid), then=then).strip()
    hand_in(tmp_path / "ada", first(text, "import os, signal, time"))
    graded(tmp_path / "ada", capsys=capsys)
    assert not psutil.pid_exists(int(pid.read_text()))


def wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def short_directory():
    with tempfile.TemporaryDirectory() as directory:
        yield directory


@pytest.mark.slow
@pytest.mark.timeout(110)
@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody adopts a daemon")
def test_a_grading_that_is_stopped_leaves_nothing(how, tmp_path, short_directory):
    pids = [tmp_path / name / "pid" for name in ("ada", "bob")]
    for pid in pids:
        text = DAEMON.format(pid=str(pid), then="while True:\n    time.sleep(0.01)\n    sum(range(1000))").strip()
        hand_in(pid.parent, first(text, "import os, signal, time"))
    folder = Path(short_directory)  # sockets are made there, and the name of one has at most 107 characters
    command = [sys.executable, "-m", "notebooks.exercises", "grade", "--jobs", "2", *(str(pid.parent) for pid in pids)]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as grading:
        wait_for(lambda: all(pid.exists() and pid.read_text() for pid in pids))
        family = psutil.Process(grading.pid).children(recursive=True)
        assert {int(pid.read_text()) for pid in pids} <= {each.pid for each in family}
        grading.send_signal(how)
        _, err = grading.communicate(timeout=30)
    wait_for(lambda: not any(each.is_running() for each in family), 10)
    if how != signal.SIGKILL:
        assert grading.returncode == 130 and "Traceback" not in err
        assert not [each for each in folder.iterdir() if each.name.startswith(("answer-", "exercise-"))]


@pytest.mark.slow
@pytest.mark.timeout(110)
def test_a_reader_that_goes_away_ends_the_grading(tmp_path):
    folders = [hand_in(tmp_path / name, generate(FIRST, solved=True)) for name in ("ada", "bob")]
    command = [sys.executable, "-m", "notebooks.exercises", "grade", *map(str, folders)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as grading:
        assert grading.stdout.readline().startswith("learner,")
        grading.stdout.close()
        err = grading.stderr.read()
        assert grading.wait(60) == 1 and "Traceback" not in err and "Exception" not in err


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit):
        commands.main(["grade", "--help"])
    assert "grade class/* --jobs 4" in capsys.readouterr().out


# ---- answers that are the same


def test_names_comments_and_layout_make_no_difference():
    one = "import os\ndef f(a: int) -> int:\n    '''Doc.'''\n    total = a + 1\n    return total\n"
    two = "def f(start):  # mine\n    x: int = (start\n        + 1)\n    return x\n"
    assert outline(one) == outline(two)
    for other in (two.replace("1", "2"), two.replace("+", "-"), two.replace("return x", "return start")):
        assert outline(one) != outline(other)
    assert outline("def f(:") == ""


def test_the_same_answers_are_found_and_short_ones_are_not():
    which = exercise("07")
    text = solved(which)
    renamed = re.sub(r"\btask_id\b", "number", text).replace("# ", "#  ") + "\n# my own work\n"
    assert renamed != text
    assert same(which, {"ada": text, "bob": renamed, "eve": text.replace("-= 1", "-= 2")}) == [["ada", "bob", "minidl"]]
    assert same(FIRST, {"ada": generate(FIRST, solved=True)}) == []
