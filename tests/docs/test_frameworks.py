"""The programs of `make wild`, where their frameworks are installed. (What is special about each framework's loader is
tried without it in tests/tracing/recording/torch_loader/test_any_loader.py.)"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tracing
from docs.make.frameworks import ROOT, Program, programs
from docs.make.stops import SAME, Case, cases, tried
from minidl.events import Kind

PYTHON = ROOT / ".venv-wild" / "bin" / "python"
SAMPLE = "with_torchdata", "accelerate: registered, 15"  # of the programs, and of what is stopped


def each(found: Sequence[Any], name: Callable[[Any], str]) -> list[Any]:
    """Parameters of a test; all but the sample are for `make full` (and `make wild`)."""
    return [pytest.param(one, id=name(one), marks=() if name(one) in SAMPLE else pytest.mark.full) for one in found]


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="the frameworks are not installed: `make wild` installs them")
@pytest.mark.parametrize("program", each(programs(), lambda program: program.path.stem))
def test_every_loader_and_worker_of_a_framework_is_recorded(program: Program, tmp_path: Path) -> None:
    run = [str(PYTHON), "-m", "tracing", "run", "-o", str(tmp_path / "trace"), str(program.path)]
    ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stderr
    trace = tracing.load(tmp_path / "trace", strict=True)
    assert trace.loaders and tracing.check(trace) == []
    began = int((trace.events["kind"] == Kind.WORKER_BEGIN).sum())
    assert began == sum(loader.num_workers for loader in trace.loaders)
    assert (trace.events["kind"] == Kind.YIELDED).sum() == (trace.tasks["yielded"] >= 0).sum() >= 60


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="the frameworks are not installed: `make wild` installs them")
@pytest.mark.parametrize("case", each([case for case in cases() if case.expected == SAME], lambda case: case.id))
def test_a_training_with_minidls_loader_goes_on_as_if_it_had_not_been_stopped(case: Case) -> None:
    assert tried(case, workers=2, python=str(PYTHON)) == SAME
