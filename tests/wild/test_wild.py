"""The programs of `make wild`, where their frameworks are installed. (What is special about each framework's loader is
tried without it in tests/tracing/recording/torch_loader/test_any_loader.py.)"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import tracing
from minidl.events import Kind
from tests.wild.table import ROOT, Program, programs

PYTHON = ROOT / ".venv-wild" / "bin" / "python"


def test_every_program_says_what_is_true_of_it() -> None:
    assert len(programs()) >= 10
    assert all(program.truth and program.verdicts for program in programs())


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="the frameworks are not installed: `make wild` installs them")
@pytest.mark.parametrize("program", programs(), ids=lambda program: program.path.stem)
def test_every_loader_and_worker_of_a_framework_is_recorded(program: Program, tmp_path: Path) -> None:
    run = [str(PYTHON), "-m", "tracing", "run", "-o", str(tmp_path / "trace"), str(program.path)]
    ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stderr
    trace = tracing.load(tmp_path / "trace", strict=True)
    assert trace.loaders and trace.unseen == [] and tracing.check(trace) == []
    began = int((trace.events["kind"] == Kind.WORKER_BEGIN).sum())
    assert began == sum(loader.num_workers for loader in trace.loaders)
    assert (trace.events["kind"] == Kind.YIELDED).sum() == (trace.tasks["yielded"] >= 0).sum() >= 60
