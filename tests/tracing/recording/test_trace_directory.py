"""What a recording may replace: an earlier trace, and of that only its own files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tracing
from minidl.events import Kind, emit
from tracing.recording import file_format as fmt
from tracing.recording.trace_directory import being_recorded

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
    assert len(before) == 5 and len(fmt.files_of(tmp_path)) == len(before), "the earlier trace's files are gone"


@pytest.mark.parametrize("recorded", [False, True], ids=["alone", "beside events"])
def test_another_programs_trace_json_is_never_taken_for_ours(recorded: bool, tmp_path: Path) -> None:
    if recorded:
        record(tmp_path)
    profile = tmp_path / fmt.DESCRIPTION
    profile.write_text(json.dumps(PROFILE))
    with pytest.raises(FileExistsError, match="neither empty nor a trace"):
        record(tmp_path)
    assert json.loads(profile.read_text()) == PROFILE
    assert fmt.is_trace(tmp_path) == recorded


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


def test_what_a_dead_process_left_is_replaced_unless_it_may_live_elsewhere(tmp_path: Path) -> None:
    """On a disk that several hosts share, the pid says nothing of a process of another machine."""
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    path = tmp_path / "run"

    def leave(**more: str) -> None:
        about = fmt.description(record(path)) | {"stopped": None, "pid": pid, **more}
        (path / fmt.DESCRIPTION).write_text(json.dumps(about))

    leave()
    assert record(path) == path
    leave(machine="another")
    with pytest.warns(UserWarning, match="is being recorded into"):
        assert record(path) == tmp_path / "run-2"
    assert not being_recorded(path, elsewhere=False), "for a reader it has ended"
