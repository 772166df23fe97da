"""What a recording may replace: an earlier trace, and of that only its own files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tracing
from minidl.events import Kind, emit
from tracing.recording import file_format as fmt

# What torch.profiler's `export_chrome_trace("trace.json")` leaves, shortened.
PROFILE = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": [], "traceName": "trace.json"}
RECORDS = """
import sys, tracing
with tracing.record(sys.argv[1]) as recording:
    print(recording.path.name, flush=True)
    sys.stdin.read()
"""


def record(directory: Path) -> Path:
    with tracing.record(directory) as recording:
        emit(Kind.LOADER, 0)
    return recording.path


def test_an_earlier_trace_is_replaced_and_a_users_files_beside_it_stay(tmp_path: Path) -> None:
    record(tmp_path)
    mine = ["events-my-notes.bin", "text-2026-11.jsonl", "events-1-1.bin", "notes.txt"]
    for name in mine:
        (tmp_path / name).write_bytes(b"precious")
    before = fmt.files_of(tmp_path)
    record(tmp_path)
    assert all((tmp_path / name).read_bytes() == b"precious" for name in mine)
    assert len(before) == 4 and len(fmt.files_of(tmp_path)) == len(before), "the earlier trace's files are gone"


def test_another_programs_trace_json_is_never_taken_for_a_trace(tmp_path: Path) -> None:
    profile = tmp_path / "trace.json"
    profile.write_text(json.dumps(PROFILE))
    with pytest.raises(FileExistsError, match="neither empty nor a trace"):
        record(tmp_path)
    with pytest.raises(tracing.TraceError, match="not a trace"):
        tracing.load(tmp_path)
    assert json.loads(profile.read_text()) == PROFILE


def test_another_programs_file_of_our_name_is_not_overwritten(tmp_path: Path) -> None:
    """The description is another program's; the events still show that a trace is here."""
    record(tmp_path)
    (tmp_path / fmt.DESCRIPTION).write_text(json.dumps(PROFILE))
    with pytest.raises(FileExistsError, match="neither empty nor a trace"):
        record(tmp_path)
    assert json.loads((tmp_path / fmt.DESCRIPTION).read_text()) == PROFILE


@pytest.mark.timeout(60)
def test_a_directory_that_is_being_recorded_into_is_left_alone(tmp_path: Path) -> None:
    """Several programs with one directory: each has a trace of its own, named beside it."""
    path = tmp_path / "run"
    command = [sys.executable, "-W", "ignore", "-c", RECORDS, str(path)]
    programs = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:  # all at once: they claim it under a lock
        names = {program.stdout.readline().strip() for program in programs if program.stdout}
        assert names == {"run", "run-2", "run-3"}
        with pytest.warns(UserWarning, match=r"run is being recorded into: recording into .*run-4"):
            assert record(path) == tmp_path / "run-4"
    finally:
        for program in programs:
            program.communicate("")
    assert record(path) == path, "once that has ended, it is replaced"


def test_within_one_program_a_trace_is_replaced_once_it_is_stopped(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run") as outer, pytest.warns(UserWarning, match="is being recorded into"):
        assert record(tmp_path / "run") == tmp_path / "run-2"
    assert record(tmp_path / "run") == outer.path


def test_what_a_killed_program_left_is_replaced(tmp_path: Path) -> None:
    record(tmp_path)
    program = subprocess.Popen([sys.executable, "-c", ""])
    program.wait()
    about = json.loads((tmp_path / fmt.DESCRIPTION).read_text()) | {"stopped": None, "pid": program.pid}
    (tmp_path / fmt.DESCRIPTION).write_text(json.dumps(about))
    assert record(tmp_path) == tmp_path
