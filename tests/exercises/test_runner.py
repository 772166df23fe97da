"""The runner: whatever a learner's file does, a clear verdict comes back. Then the commands around it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import tracing
from notebooks.exercises import __main__ as commands
from notebooks.exercises import check, feedback, grading, progress
from notebooks.exercises.exercise import exercise, exercises
from notebooks.exercises.grading import grade
from notebooks.exercises.protocol import Breach
from notebooks.exercises.skeleton import generate
from notebooks.exercises.verdict import Status
from tests.exercises.wrong.edits import wrong_answers

ROOT = Path(__file__).parents[2]
FIRST = exercise("01")
BODY = "raise NotImplementedError"


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """An empty folder for answers, which the commands use."""
    folder = tmp_path / "answers"
    for module in ("notebooks.exercises.answers", "notebooks.exercises.__main__"):
        monkeypatch.setattr(f"{module}.ANSWERS", folder)
    monkeypatch.setattr("notebooks.exercises.answers.provide.__defaults__", (folder,))
    monkeypatch.setattr("notebooks.exercises.answers.provide_all.__defaults__", (folder,))
    folder.mkdir()
    return folder


def write(folder: Path, body: str, head: str = "") -> Path:
    """An answer to exercise 1 with this body."""
    path = folder / FIRST.file
    text = FIRST.skeleton.read_text(encoding="utf-8").replace(BODY, body.replace("\n", "\n        "))
    path.write_text(text.replace("from typing", f"{head}\nfrom typing", 1), encoding="utf-8")
    return path


LOOKS_RIGHT = "return self.dataset[keys]"
# name: (body, imports, the mistake's name, words of what was got)
MISTAKES = {
    "a syntax error": ("return (self.dataset", "", "syntax error", "'(' was never closed"),
    "an import of the reference": (
        "return MapFetcher.fetch(self, keys)",
        "from minidl.data.fetch import MapFetcher",
        "imports the reference",
        "import MapFetcher",
    ),
    "torch's reference": (
        "return Theirs.fetch(self, keys)",
        "from torch.utils.data._utils.fetch import _MapDatasetFetcher as Theirs",
        "imports the reference",
        "_MapDatasetFetcher",
    ),
    "the module of the reference": (
        "return 1",
        "import minidl.data.fetch",
        "imports the reference",
        "minidl.data.fetch",
    ),
    "a look into sys.modules": (
        "return sys.modules['minidl.data.fetch'].__dict__['MapFetcher'].fetch(self, keys)",
        "import sys",
        "goes round the exercise",
        "sys.modules",
    ),
    "the source of the reference": (
        "return inspect.getsource(type(self))",
        "import inspect",
        "goes round the exercise",
        "inspect",
    ),
    "a look for the function": ("return gc.get_objects()", "import gc", "goes round the exercise", "gc"),
    "a patched grader": (
        "return 1",
        "import notebooks.exercises.uses as uses\nuses.judged = lambda answer: None",
        "goes round the exercise",
        "notebooks.exercises.uses",
    ),
    "the simulated world": (
        "return 1",
        "from minidl.world import simulated",
        "goes round the exercise",
        "from minidl.world import simulated",
    ),
    "a verdict of its own": ("print('passed')\nos._exit(0)", "import os", "ends the process", "exit code 0"),
    "an endless loop": ("while True:\n    pass", "", "never returns", "after 1 s of computing it was in line"),
    "an endless loop that catches everything": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "",
        "never returns",
        "of computing it was in line",
    ),
    "an endless wait": ("threading.Event().wait()", "import threading", "never returns", "threading.Event().wait()"),
    "a misspelt name": ("return self.datset[keys]", "", "raises", "datset"),
    "the end of the process": ("os._exit(3)", "import os", "ends the process", "exit code 3"),
    "a signal": ("os.kill(os.getpid(), 9)", "import os", "ends the process", "signal 9"),
    "the end of the program": ("raise SystemExit('enough')", "", "raises", "SystemExit: enough"),
    "an error when it is imported": ("return 1", "import nowhere_at_all", "does not load", "nowhere_at_all"),
    "a generator": ("yield self.dataset[keys]", "", "is a generator", "yield"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("impatient")
def test_a_mistake_that_any_exercise_may_see_is_reported(name, tmp_path):
    body, head, mistake, words = MISTAKES[name]
    verdict = grade(FIRST, write(tmp_path, body, head))
    assert verdict.status is Status.FAILED
    assert verdict.finding.mistake == mistake, verdict
    assert words in verdict.finding.got
    assert all(text for what, text in feedback.lines(verdict))


@pytest.mark.timeout(60)
def test_an_error_is_reported_with_its_line(tmp_path):
    path = write(tmp_path, "spelt = keys\nreturn misspelt")
    line = path.read_text().splitlines().index("        return misspelt") + 1
    assert f"(line {line} of 01_map_fetcher.py)" in grade(FIRST, path).finding.got


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("def fetch(self, keys", "def fetch(self, index", "wrong signature"),
        ("def fetch(self, keys: Any)", "def fetch(self)", "wrong signature"),
        ("def fetch(", "def fetches(", "function is missing"),
        ("class MapFetcher", "class Fetcher", "function is missing"),
        ("from __future__", "\0from __future__", "syntax error"),
    ],
)
def test_a_changed_signature_is_refused(old, new, mistake, tmp_path):
    path = write(tmp_path, LOOKS_RIGHT)
    path.write_text(path.read_text().replace(old, new))
    assert grade(FIRST, path).finding.mistake == mistake


@pytest.mark.timeout(60)
def test_an_answer_may_inherit_from_the_class_that_its_methods_are_put_into(tmp_path):
    head = "from minidl.data.fetch import MapFetcher"
    solved = generate(FIRST, solved=True).replace("from typing", f"{head}\nfrom typing", 1)
    path = tmp_path / FIRST.file
    path.write_text(solved.replace("class MapFetcher", "class MapFetcher(MapFetcher)"))
    assert grade(FIRST, path).status is Status.PASSED
    path.write_text(path.read_text().replace("get_all(keys)", "super().fetch(keys)"))
    assert "super" in grade(FIRST, path).finding.got  # there is nothing to be had from it


@pytest.mark.timeout(60)
def test_an_init_of_the_answers_own_is_refused(tmp_path):
    path = write(tmp_path, LOOKS_RIGHT)
    path.write_text(
        path.read_text().replace("    def fetch", "    def __init__(self):\n        self.mine = []\n\n    def fetch")
    )
    finding = grade(FIRST, path).finding
    assert finding.mistake == "makes fields" and "where it is first needed" in finding.cause


@pytest.mark.timeout(60)
def test_a_file_that_is_not_text_cannot_be_read(tmp_path):
    path = tmp_path / FIRST.file
    path.write_bytes(b"\xff\xfe\x00")
    assert grade(FIRST, path).finding.mistake == "cannot be read"
    path.unlink()
    assert grade(FIRST, path).finding.mistake == "cannot be read"


@pytest.mark.timeout(60)
def test_what_an_answer_prints_is_shown_and_does_no_harm(tmp_path):
    path = write(tmp_path, "print('keys are', keys)\nprint('!' * 1_000_000)\n" + LOOKS_RIGHT)
    verdict = grade(FIRST, path)
    assert verdict.printed[0] == "keys are 3"
    assert verdict.finding.mistake == "several samples"
    assert all(len(line) <= 103 for line in verdict.printed)


@pytest.mark.timeout(60)
def test_an_event_that_cannot_be_recorded_is_reported(tmp_path):
    """Its value is not an integer, so the failing run cannot be saved."""
    which = exercise("06")
    text = wrong_answers()["06"]["no_resume"].text(which).replace("events import ", "events import Kind, ")
    path = tmp_path / which.file
    path.write_text(text.replace("while not self", "emit(Kind.WORKER_READY, value=0.5)\n        while not self"))
    finding = grade(which, path).finding
    assert finding.mistake == "emits an invalid event" and "WORKER_READY" in finding.got and "0.5" in finding.got


@pytest.mark.timeout(60)
def test_a_run_is_shown_up_to_the_first_long_wait(tmp_path):
    """Every process waits for ever, and checks every five seconds: a picture of that would show nothing else."""
    which = exercise("11")
    path = tmp_path / which.file
    path.write_text(wrong_answers()["11"]["active_at_last"].text(which), encoding="utf-8")
    assert grade(which, path).finding.broken.picture.exists()
    events = tracing.load(path.with_suffix(".trace")).events
    assert len(events) > 100 and events["time"][-1] - events["time"][0] < 0.01e9  # ns
    assert np.diff(events["time"]).max() < 0.001e9


def test_the_line_in_the_picture_says_what_happened():
    assert Breach("batch 2 was yielded where batch 1 was due").label == "batch 2 was yielded where batch 1 was due"
    long = Breach(f"it returned {list(range(40))}, not {list(range(41))}\nand more").label
    assert len(long) <= 60 and long.startswith("it returned [0, 1,") and long.endswith(" …")


@pytest.mark.timeout(60)
def test_nothing_is_left_of_what_an_answer_starts(tmp_path):
    """A process that it started is ended with it, even one that ignores signals."""
    pid_file = tmp_path / "pid"
    body = f"child = os.fork()\nif child:\n    open({str(pid_file)!r}, 'w').write(str(child))\n    {LOOKS_RIGHT}\n"
    body += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)"
    grade(FIRST, write(tmp_path, body, "import os, signal, time"))
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not psutil.pid_exists(pid)


def test_an_endless_answer_is_reported_within_five_seconds_on_an_idle_machine():
    assert max(grading.COMPUTES, grading.WAITS) + 10 * grading.LOOK < 5


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.usefixtures("impatient")
def test_an_endless_wait_is_reported(tmp_path):
    verdict = grade(FIRST, write(tmp_path, "time.sleep(1000)", "import time"))
    assert "it waits in line" in verdict.finding.got
    assert verdict.seconds > grading.WAITS


# ---- commands


def run(*arguments: str, capsys) -> tuple[int, str]:
    status = commands.main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out + captured.err


@pytest.mark.timeout(60)
def test_a_learner_gets_from_the_first_list_to_the_first_pass(answers, capsys):
    status, output = run("list", capsys=capsys)
    assert status == 0
    assert FIRST.file in output and "check 01" in output and f"0 of {len(exercises())}" in output
    assert {path.name for path in answers.glob("*.py")} == {each.file for each in exercises().values()}
    status, output = run("check", capsys=capsys)
    assert status == 1 and "01" in output and "not attempted" in output
    (answers / FIRST.file).write_text(generate(FIRST, solved=True))
    status, output = run("check", "1", capsys=capsys)
    assert status == 0 and "passed" in output and f"1 of {len(exercises())}" in output
    assert "yours" in output and "minidl's" in output and "Looked up each time" in output
    status, output = run("list", capsys=capsys)
    assert "done" in output


@pytest.mark.timeout(60)
def test_an_exercise_that_passed_and_then_fails_is_not_done(answers, capsys):
    path = answers / FIRST.file
    path.write_text(generate(FIRST, solved=True))
    run("check", "01", capsys=capsys)
    assert progress.done(answers) == {"01"}
    path.write_text(path.read_text().replace("self.dataset[keys]", "[self.dataset[keys]]"))
    status, output = run("check", "01", capsys=capsys)
    assert status == 1 and "passed earlier" in output
    assert progress.done(answers) == set()


def test_hints_come_one_after_another_and_start_again(answers, capsys):
    for hint in (*FIRST.hints, FIRST.hints[0]):
        status, output = run("hint", "01", capsys=capsys)
        assert status == 0 and " ".join(hint.split()) in " ".join(output.split())


def test_reset_keeps_the_old_answer(answers, capsys):
    path = write(answers, LOOKS_RIGHT)
    text = path.read_text()
    progress.note(answers, grading.Verdict("01", Status.PASSED))
    assert run("reset", "01", capsys=capsys)[0] == 0
    assert path.read_text() == FIRST.skeleton.read_text()
    assert path.with_suffix(".py.old").read_text() == text
    assert progress.done(answers) == set()
    assert run("reset", "01", capsys=capsys)[0] == 0  # again: nothing to reset, nothing lost
    assert path.with_suffix(".py.old").read_text() == text


@pytest.mark.parametrize("arguments", [["check", "99"], ["hint", "x"], ["reset", "0"], ["grade", "nowhere-at-all"]])
def test_bad_arguments_are_reported_in_one_line(arguments, answers, capsys):
    status, output = run(*arguments, capsys=capsys)
    assert status == 2
    assert output.startswith("error: ") and output.count("\n") == 1


@pytest.mark.timeout(60)
def test_progress_that_cannot_be_read_counts_as_none(answers):
    (answers / "progress.json").write_text("{")
    assert progress.done(answers) == set()
    assert not progress.note(answers, grading.Verdict("07", Status.PASSED))
    assert progress.done(answers) == {"07"}


@pytest.mark.timeout(60)
def test_check_shows_the_verdict_in_a_notebook(answers, monkeypatch):
    monkeypatch.setattr("notebooks.exercises.answers.ANSWERS", answers)
    write(answers, "return [self.dataset[keys]]")
    shown = check("01")._repr_html_()
    assert "one sample in a list" not in shown  # the short name is for teachers
    assert "fetch(3), without automatic batching" in shown and "[9]" in shown
    with pytest.raises(ValueError, match="there is no exercise"):
        check("77")


@pytest.fixture
def watch(tmp_path):
    """A function that starts `watch` with these arguments on answers in tmp_path."""
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            environment = {**os.environ, "MINIDL_ANSWERS": str(tmp_path), "PYTHONUNBUFFERED": "1"}
            command = [sys.executable, "-m", "notebooks.exercises", "watch", *arguments]
            watcher = stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(watcher.kill)
            return watcher

        yield start


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_watching_one_exercise_checks_it_at_once_and_no_other(watch, tmp_path):
    watcher = watch("2")
    assert "02_collate.py: save it to check it" in until(watcher, "Ctrl-C to stop")
    until(watcher, "02 collation of nested samples: not attempted")
    write(tmp_path, "return (self.dataset")
    (tmp_path / "02_collate.py").write_text("def (", encoding="utf-8")
    assert "01 " not in until(watcher, "02 collation of nested samples: failed")


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_watch_checks_what_is_saved_and_ends_with_ctrl_c(watch, tmp_path):
    watcher = watch()
    until(watcher, "01 the map fetcher's fetch: not attempted")
    path = tmp_path / FIRST.file
    path.write_text(generate(FIRST, solved=True)[:-40] + "(")  # saved half way
    until(watcher, "syntax error", "was never closed")
    path.write_text(generate(FIRST, solved=True))
    until(watcher, "01 the map fetcher's fetch: passed")
    watcher.send_signal(2)
    assert watcher.wait(30) == 130


def until(process: subprocess.Popen[str], *words: str) -> str:
    """Its output up to a line with one of these words. (The test's time limit ends it.)"""
    output = ""
    for line in process.stdout:
        output += line
        if any(word in line for word in words):
            return output
    raise AssertionError(f"it ended without any of {words}")


def test_without_a_command_it_lists_them(capsys):
    assert commands.main([]) == 2
    said = capsys.readouterr().out
    assert "check 07" in said and "together" in said
