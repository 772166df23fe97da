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
    rss, pss, private, files, mappings, most_files, most_mappings = linux.memory()
    process = psutil.Process()
    full = process.memory_full_info()
    assert abs(rss - full.rss) < 0.05 * full.rss and abs(pss - full.pss) < 0.05 * full.pss
    assert abs(private - full.uss) < 0.05 * full.uss and abs(files - process.num_fds()) <= 2
    assert abs(mappings - len(process.memory_maps(grouped=False))) < 20
    assert most_files == process.rlimit(psutil.RLIMIT_NOFILE)[0] and most_mappings > 1000


@pytest.mark.parametrize(
    ("load", "says"),
    [
        ("objects", ["Worker 0's private memory grew by", "reference count"]),
        ("array", []),
        ("caching", ["Worker 0's private memory grew by", "It keeps what it makes"]),
        ("kept", ["Main holds 1.0 more", "keep copies instead"]),
        ("copied", []),
    ],
)
def test_only_what_grows_without_need_is_warned_of(load: str, says: list[str], run: Recorded) -> None:
    warnings = memory.warnings(run(load))
    assert len(warnings) == bool(says) and all(words in warnings[0] for words in says)
    assert set(warnings) <= set(tracing.report(run(load)).notes)


def test_how_many_batches_are_left_is_counted_and_the_samples_are_drawn(run: Recorded) -> None:
    trace = run("kept")
    main, worker = memory.sampled_processes(trace)
    (warning,) = memory.warnings(trace)
    field = "open_files" if "open files" in warning else "mappings"
    left = int(warning.split(": after ")[1].split()[0].replace(",", ""))
    assert left == pytest.approx(main.samples[f"most_{field}"][0] - main.samples[field].max(), rel=0.2)
    drawn = {axes.get_gid(): axes for axes in tracing.timeline(trace).axes}
    for line, process in zip(drawn["memory (MB)"].get_lines(), (main, worker), strict=False):
        shown = process.samples["pss"] / 2**20
        assert np.isin(line.get_ydata(), shown).all() and len(line.get_ydata()) >= len(shown) - 1
    assert drawn["memory (MB)"].get_xlim() == drawn["lanes"].get_xlim()
