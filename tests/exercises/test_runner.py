"""The runner: whatever a learner's file does, a clear verdict comes back. Then the commands around it, and pytest's
items."""

from __future__ import annotations

import contextlib
import csv
import io
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
from notebooks.exercises import answers as files
from notebooks.exercises import check, feedback, progress, runner
from notebooks.exercises.exercise import exercise, exercises, known
from notebooks.exercises.runner import grade
from notebooks.exercises.skeleton import edited, generate
from notebooks.exercises.verdict import Status, Verdict

ROOT = Path(__file__).parents[2]
FIRST = exercise("01")
TODO = "raise NotImplementedError"


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """An empty folder for answers, which the commands use."""
    folder = tmp_path / "answers"
    monkeypatch.setattr(files, "ANSWERS", folder)
    folder.mkdir()
    return folder


@pytest.fixture
def impatient(monkeypatch):
    """An answer that goes on and on is soon stopped."""
    monkeypatch.setattr(runner, "COMPUTES", 1.0)
    monkeypatch.setattr(runner, "WAITS", 1.0)


def write(folder: Path, body: str, head: str = "") -> Path:
    """An answer to exercise 1 with this body."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FIRST.file
    text = generate(FIRST).replace(TODO, body.replace("\n", "\n        "))
    path.write_text(text.replace("from typing", f"{head}\nfrom typing", 1), encoding="utf-8")
    return path


LOOKS_RIGHT = "return self.dataset[keys]"
# name: (body, imports, the mistake's name, words of what was got)
MISTAKES = {
    "a syntax error": ("return (self.dataset", "", "syntax error", "'(' was never closed"),
    "the reference": (
        "return MapFetcher.fetch(self, keys)",
        "from minidl.data.fetch import MapFetcher",
        "imports the reference",
        "MapFetcher",
    ),
    "torch's": (LOOKS_RIGHT, "from torch.utils.data import _utils", "imports the reference", "_utils"),
    "an endless loop": ("while True:\n    pass", "", "never returns", "after 1 s of computing it was in line"),
    "an endless wait": ("threading.Event().wait()", "import threading", "never returns", "threading.Event().wait()"),
    "a misspelt name": ("return self.datset[keys]", "", "no error", "datset"),
    "the end of the process": ("os._exit(3)", "import os", "ends the process", "exit code 3"),
    "the end of the program": ("raise SystemExit('enough')", "", "raises", "SystemExit: enough"),
    "an error when it is imported": ("return 1", "import nowhere_at_all", "does not load", "nowhere_at_all"),
    "a generator": ("yield self.dataset[keys]", "", "is a generator", "yield"),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("impatient")
def test_a_mistake_that_any_exercise_may_see_is_reported(name, tmp_path):
    body, head, mistake, words = MISTAKES[name]
    verdict = grade(FIRST, write(tmp_path, body, head))
    assert verdict.status is Status.FAILED
    assert verdict.finding.mistake == mistake, verdict
    assert words in verdict.finding.got
    assert all(text for what, text in feedback.lines(verdict))


def test_an_error_is_reported_with_its_line(tmp_path):
    path = write(tmp_path, "spelt = keys\nreturn misspelt")
    line = path.read_text().splitlines().index("        return misspelt") + 1
    finding = grade(FIRST, path).finding
    assert f"(line {line} of 01_map_fetcher.py)" in finding.got and "misspelt" in finding.cause


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("def fetch(self, keys: Any)", "def fetch(self)", "wrong signature"),
        ("def fetch(", "def fetches(", "function is missing"),
        ("class MapFetcher", "class Fetcher", "function is missing"),
        ("from __future__", "\0from __future__", "syntax error"),
        ("    def fetch", "    def __init__(self):\n        self.mine = []\n\n    def fetch", "makes fields"),
    ],
)
def test_a_file_of_another_form_is_refused(old, new, mistake, tmp_path):
    path = write(tmp_path, LOOKS_RIGHT)
    path.write_text(path.read_text().replace(old, new, 1))
    assert grade(FIRST, path).finding.mistake == mistake


def test_a_method_of_its_own_must_not_replace_one_of_minidls(tmp_path):
    which = exercise("05")
    path = tmp_path / which.file
    text = generate(which, solved=True)
    path.write_text(text.replace("\n    def _choose", "\n    def _receive(self):\n        return 0\n\n    def _choose"))
    finding = grade(which, path).finding
    assert finding.mistake == "name is taken" and "choose another name" in finding.cause


def test_an_answer_may_inherit_and_define_a_dataclass(tmp_path):
    head = "import dataclasses\nfrom minidl.data.fetch import MapFetcher\n\n\n"
    head += "@dataclasses.dataclass\nclass Share:\n    worker_id: int\n\n\n"
    text = generate(FIRST, solved=True).replace("from typing", f"{head}from typing", 1)
    path = tmp_path / FIRST.file
    path.write_text(text.replace("class MapFetcher", "class MapFetcher(MapFetcher)"))
    assert grade(FIRST, path).passed


def test_what_an_answer_prints_is_shown_and_does_no_harm(tmp_path):
    verdict = grade(FIRST, write(tmp_path, "print('keys are', keys)\nprint('!' * 1_000_000)\n" + LOOKS_RIGHT))
    assert "keys are 3" in verdict.printed and all(len(line) <= 103 for line in verdict.printed)


@pytest.mark.parametrize(
    "value, words", [("0.5", "emit takes integers"), ("__import__('time').time_ns()", "from the clock")]
)
def test_a_run_that_cannot_be_recorded_is_reported(tmp_path, value, words):
    which = exercise("06")
    text = edited(which, known("06")["no_resume"]).replace("events import ", "events import Kind, ")
    path = tmp_path / which.file
    path.write_text(text.replace("while not self", f"emit(Kind.WORKER_READY, value={value})\n        while not self"))
    finding = grade(which, path).finding
    assert words in finding.seen[-1] and not finding.trace


def test_a_failing_run_is_drawn_up_to_the_first_long_wait(tmp_path):
    which = exercise("07")
    path = tmp_path / which.file
    path.write_text(edited(which, known("07")["never_looks"]), encoding="utf-8")
    finding = grade(which, path).finding
    assert "it never ends: main waits in line" in finding.got and "_get_data" in finding.got
    assert Path(finding.picture).exists() and "step through" not in finding.cause
    events = tracing.load(path.with_suffix(".trace")).events
    assert len(events) > 30 and np.diff(events["time"]).max() < 0.001e9


def test_nothing_is_left_of_what_an_answer_starts(tmp_path):
    """A process that it started is ended with it, even one that ignores signals."""
    pid_file = tmp_path / "pid"
    body = f"child = os.fork()\nif child:\n    open({str(pid_file)!r}, 'w').write(str(child))\n    {LOOKS_RIGHT}\n"
    body += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)"
    grade(FIRST, write(tmp_path, body, "import os, signal, time"))
    pid, deadline = int(pid_file.read_text()), time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not psutil.pid_exists(pid)


# ---- commands


def run(*arguments: str, capsys) -> tuple[int, str]:
    status = commands.main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_a_learner_gets_from_the_first_list_to_the_first_pass(answers, capsys):
    status, output = run("list", capsys=capsys)
    assert status == 0
    assert FIRST.file in output and "check 01" in output and f"0 of {len(exercises())}" in output
    assert [path.name for path in answers.glob("*.py")] == [FIRST.file], "made when it is asked for"
    status, output = run("check", capsys=capsys)
    assert status == 1 and "01" in output and "not attempted" in output
    (answers / FIRST.file).write_text(generate(FIRST, solved=True))
    status, output = run("check", "1", capsys=capsys)
    assert status == 0 and "passed" in output and f"1 of {len(exercises())}" in output
    assert "yours" in output and "minidl's" in output and "Looked up each time" in output
    (answers / FIRST.file).write_text(
        generate(FIRST, solved=True).replace("self.dataset[keys]", "[self.dataset[keys]]")
    )
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
    progress.note(answers, Verdict("01", Status.PASSED))
    for _ in range(2):  # the second time there is nothing to reset, and nothing is lost
        assert run("reset", "01", capsys=capsys)[0] == 0
        assert path.read_text() == generate(FIRST) and path.with_suffix(".py.old").read_text() == text
    assert progress.done(answers) == set()


@pytest.mark.parametrize("arguments", [["check", "99"], ["hint", "x"], ["reset", "0"], ["grade", "nowhere-at-all"]])
def test_bad_arguments_are_reported_in_one_line(arguments, answers, capsys):
    status, output = run(*arguments, capsys=capsys)
    assert status == 2
    assert output.startswith("error: ") and output.count("\n") == 1


def test_progress_that_cannot_be_read_counts_as_none(answers):
    (answers / "progress.json").write_text("{")
    assert progress.done(answers) == set()
    assert not progress.note(answers, Verdict("07", Status.PASSED))
    assert progress.done(answers) == {"07"}


def test_check_shows_the_verdict_in_a_notebook(answers):
    write(answers, "return [self.dataset[keys]]")
    shown = check("01")._repr_html_()
    assert "one sample in a list" not in shown  # the short name is for teachers
    assert "fetch(3), without automatic batching" in shown and "sample 3" in shown
    with pytest.raises(ValueError, match="there is no exercise"):
        check("77")


def test_watch_checks_what_is_saved_and_ends_with_ctrl_c(tmp_path):
    environment = {**os.environ, "MINIDL_ANSWERS": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "notebooks.exercises", "watch"]
    with contextlib.ExitStack() as stack:
        watcher = stack.enter_context(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=-1, text=True))
        stack.callback(watcher.kill)
        until(watcher, "01 the map fetcher's fetch: not attempted")
        path = tmp_path / FIRST.file
        path.write_text(generate(FIRST, solved=True)[:-40] + "(")  # saved half way
        until(watcher, "syntax error", "was never closed")
        path.write_text(generate(FIRST, solved=True))
        until(watcher, "01 the map fetcher's fetch: passed")
        watcher.send_signal(2)
        assert watcher.wait(30) == 130


def until(process, *words: str) -> None:
    """Read its output up to a line with one of these words. (The test's time limit ends it.)"""
    assert any(any(word in line for word in words) for line in process.stdout), f"it ended without any of {words}"


def test_the_table_and_the_summary_of_a_class(tmp_path, capsys):
    write(tmp_path / "ada", "return [self.dataset[keys]]")
    own = tmp_path / "bo" / "notebooks" / "exercises" / "answers"
    own.mkdir(parents=True)
    (own / FIRST.file).write_text(generate(FIRST, solved=True))
    write(tmp_path / "cy", "return self.datset[keys]")
    write(tmp_path / "di", "return misspelt")
    before = sorted(tmp_path.rglob("*"))
    summary = tmp_path.parent / "summary.txt"
    folders = [str(tmp_path / name) for name in ("ada", "bo", "cy", "di")]
    assert commands.main(["grade", *folders, "--jobs", "2", "--summary", str(summary)]) == 0
    captured = capsys.readouterr()
    header, *rows = csv.reader(io.StringIO(captured.out))
    assert header == ["learner", "passed", *exercises(), *(f"{each} message" for each in exercises())]
    assert [row[:4] for row in rows] == [
        ["ada", "0", "one sample in a list", "not attempted"],
        ["bo", "1", "passed", "not attempted"],
        ["cy", "0", "no error", "not attempted"],
        ["di", "0", "no error", "not attempted"],
    ]
    assert rows[0][2 + len(exercises())].startswith("fetch(3), without automatic batching: ['sample 3']; expected: ")
    assert "  1  one sample in a list (ada)" in captured.err and sorted(tmp_path.rglob("*")) == before
    assert "(cy, di)" in summary.read_text()


def test_pytest_collects_an_item_for_each_answer_and_junit_comes_with_it(tmp_path):
    write(tmp_path, "return [self.dataset[keys]]")
    (tmp_path / exercise("02").file).write_text(generate(exercise("02")))
    (tmp_path / exercise("03").file).write_text(generate(exercise("03"), solved=True))
    report = tmp_path / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(tmp_path),
        "-p",
        "notebooks.exercises.conftest",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run([*command, f"--junit-xml={report}"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "1 failed, 1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "not in a list" in done.stdout and "Traceback" not in done.stdout
    assert 'failures="1"' in report.read_text() and "exercises/texts" not in report.read_text()


def test_without_a_command_it_lists_them(capsys):
    assert commands.main([]) == 2
    said = capsys.readouterr().out
    assert "check 07" in said and "together" in said
