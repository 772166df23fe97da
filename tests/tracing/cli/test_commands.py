"""The command line: what it writes, its exit status, and one clear line for whatever goes wrong. (What each view shows:
tests/tracing/views. That each command makes a file: docs/make/claims.py.)"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tracing
from minidl.events import Kind
from tests.samples import Samples
from tests.tracing import report_loads as loads
from tracing.__main__ import main, make_parser
from tracing.recording import file_format as fmt

(of_commands,) = (each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction))
PARSERS: dict[str, argparse.ArgumentParser] = of_commands.choices


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished trace. Not to be changed."""
    path = tmp_path_factory.mktemp("cli") / "run.trace"
    loads.record(path, Samples(12), num_workers=2)
    return path


@pytest.fixture
def copy(path: Path, tmp_path: Path) -> Path:
    """A trace to be damaged."""
    return Path(shutil.copytree(path, tmp_path / "copy.trace"))


def failed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Run a command that must fail with status 2 and one line on stderr; return that line."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as exit:  # argparse's way
        status = int(exit.code or 0)
    captured = capsys.readouterr()
    assert status == 2 and captured.out == ""
    assert captured.err.count("\n") == 1 and captured.err.startswith("error: ")
    return captured.err


# ---- what they write


def test_compare_prints_what_its_function_returns(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(path), str(path)]) == 0
    assert capsys.readouterr().out == f"{tracing.compare(tracing.load(path), tracing.load(path))}\n"


@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_timeline_has_the_format_of_its_files_name(suffix: str, begin: bytes, path: Path, tmp_path: Path) -> None:
    picture = tmp_path / f"picture.{suffix}"
    assert main(["timeline", str(path), "--batches", "2:8", "-o", str(picture)]) == 0
    assert picture.read_bytes().startswith(begin)


def test_step_names_the_page_that_it_writes(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["step", str(path)]) == 0
    assert capsys.readouterr().out == "step.html: open it in a browser\n"
    assert (tmp_path / "step.html").read_text().startswith("<!doctype html>")


def test_check_prints_what_is_broken_and_how_the_run_ended(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = loads.main_is_killed(tmp_path / "run.trace")
    assert main(["check", str(trace.path)]) == 0
    printed = capsys.readouterr().out
    assert "all laws hold" in printed and "Note: Main was killed in the middle of an epoch" in printed
    for file in copy.glob("events-*-*.bin"):  # main receives the result of task 0 twice, and that of task 1 never
        records = np.memmap(file, fmt.RECORD_DTYPE, "r+", fmt.HEADER_SIZE)
        records["task"][(records["kind"] == Kind.RECEIVED) & (records["task"] == 1)] = 0
        records.flush()
    assert main(["check", str(copy)]) == 1
    assert "broken laws" in capsys.readouterr().out


def test_help_lists_the_commands_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0  # without a command, the list is printed
    listed = capsys.readouterr().out
    for command in PARSERS:
        assert f"    {command} " in listed
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert re.search(rf"examples?:\n  python -m tracing {command} ", capsys.readouterr().out)


# ---- what goes wrong


PICTURE = "timeline DIR -o picture.png"
WRONG = [  # DIR: a sound trace
    "dance", "report", "timeline DIR", "timeline DIR -o picture.doc", f"{PICTURE} --batches 8:2",
    f"{PICTURE} --batches 800:900", "timeline DIR -o no/such/folder/picture.png", f"{PICTURE} --loader 70",
    f"{PICTURE} --epoch 7", f"{PICTURE} --from 1e6", f"{PICTURE} --from 2 --to 1", f"{PICTURE} --follow 500",
    "live DIR --speed 0", "live DIR --speed fast",
    "sequence DIR -o picture.png", "sequence DIR --batches 800:900", "sequence DIR --loader 70",
    "sequence DIR --epoch 7", "sequence DIR --from 1e6", "sequence DIR --width 10", "sequence DIR --most 0",
    "export DIR -o demo.json", "export DIR --format csv -o demo.csv", "export DIR --format jsonl -o no/such/demo.jsonl",
    "compare DIR", "compare DIR no/such.trace",
    "whatif DIR --workers 2,-1", "whatif DIR --workers 2,", "whatif DIR --prefetch 0", "whatif DIR --loader 70",
    "run no/such/script.py", "run -m no_such_module", "run",
    "step DIR -o step.png", "step DIR --batches 800:900", "step DIR --loader 70", "step DIR --epoch 7",
    "step DIR --from 1e6", "demo --files some",
]  # fmt: skip


def reading() -> Iterator[str]:
    """Each command that reads a trace, with the options that it needs."""
    for name, parser in PARSERS.items():
        if any(action.dest == "trace" for action in parser._actions):
            options = [action for action in parser._actions if action.required and action.option_strings]
            needed = [f"{each.option_strings[0]} {next(iter(each.choices or ['picture.png']))}" for each in options]
            yield " ".join([name, *needed])


READING = list(reading())


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_argument_is_one_line(arguments: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed(capsys, *(path if each == "DIR" else each for each in arguments.split()))


@pytest.mark.parametrize("command", READING)
def test_a_missing_trace_is_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path) in failed(capsys, *command.split(), tmp_path)
    assert "missing" in failed(capsys, *command.split(), tmp_path / "missing")


@pytest.mark.parametrize("command", [*(each for each in READING if not each.startswith(("live", "export"))), "compare"])
def test_nothing_is_drawn_or_judged_of_an_empty_trace(
    command: str, path: Path, nothing: tracing.Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [path] * (command == "compare")
    line = failed(capsys, *command.split(), *arguments, nothing.path)
    assert "No loader was recorded" in line or "the trace has no events" in line


def test_what_is_left_of_a_damaged_trace_is_reported(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    largest = max(copy.glob("events-*-*.bin"), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[: fmt.HEADER_SIZE + 50 * fmt.RECORD.size])
    assert main(["report", str(copy)]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("warning: ") and largest.name in captured.err
    assert "Note: " in captured.out and "Verdict" in captured.out


def test_the_demo_overwrites_no_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert "neither empty nor a trace" in failed(capsys, "demo", "-o", tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_reader_that_leaves_is_no_error(path: Path) -> None:
    """`check | head`: the pipe's reader is gone before anything is written."""
    code = f"import sys; from tracing.__main__ import main; sys.stdin.read(); sys.exit(main(['check', {str(path)!r}]))"
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.close()
    with process.stderr as errors:
        printed = errors.read()
    assert (process.wait(), printed) == (0, b"")
