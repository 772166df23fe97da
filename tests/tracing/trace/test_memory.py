"""Memory beside the batches: real processes whose memory grows, or does not, for known reasons."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

import tracing
from tests.tracing.loads import Recorded
from tracing.recording import linux
from tracing.trace import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is sampled from /proc")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """run("objects") is the trace of that load."""
    folder = tmp_path_factory.mktemp("memory")
    subprocess.run([sys.executable, "-m", "tests.tracing.memory_loads", folder], cwd=ROOT, timeout=50, check=True)
    return {path.name: tracing.load(path) for path in folder.iterdir()}.__getitem__


def test_a_sample_holds_what_psutil_finds() -> None:
    rss, pss, private = linux.memory()
    full = psutil.Process().memory_full_info()
    assert abs(rss - full.rss) < 0.05 * full.rss and abs(pss - full.pss) < 0.05 * full.pss
    assert abs(private - full.uss) < 0.05 * full.uss


@pytest.mark.parametrize(
    ("load", "says"),
    [
        ("objects", ["Worker 0's private memory grew by", "reference count"]),
        ("array", []),
        ("caching", ["Worker 0's private memory grew by", "It keeps what it makes"]),
    ],
)
def test_only_what_grows_without_need_is_warned_of(load: str, says: list[str], run: Recorded) -> None:
    warnings = memory.warnings(run(load))
    assert len(warnings) == bool(says) and all(words in warnings[0] for words in says)
    assert set(warnings) <= set(tracing.report(run(load)).notes)


def test_the_samples_are_drawn(run: Recorded) -> None:
    trace = run("array")
    main, worker = memory.sampled_processes(trace)
    drawn = {axes.get_gid(): axes for axes in tracing.timeline(trace).axes}
    for line, process in zip(drawn["memory (MB)"].get_lines(), (main, worker), strict=False):
        since, shown = process.samples["time"] - trace.start, line.get_ydata()
        assert np.isin(shown, process.samples["pss"] / 2**20).all()
        assert len(shown) >= ((since >= 0) & (since <= trace.duration)).sum() > 3
    assert drawn["memory (MB)"].get_xlim() == drawn["lanes"].get_xlim()
