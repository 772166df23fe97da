"""Memory beside the batches: real processes whose memory grows, or does not, for known reasons."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

import minidl
import tracing
from minidl.events import Kind
from tracing.recording import watch
from tracing.trace import memory

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is sampled from /proc"),
]
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tracing.Trace]:
    """run("objects") is the trace of that load."""
    folder = tmp_path_factory.mktemp("memory")
    subprocess.run([sys.executable, "-m", "tests.tracing.memory_loads", folder], cwd=ROOT, timeout=50, check=True)
    return {path.name: tracing.load(path) for path in folder.iterdir()}.__getitem__


def warned(trace: tracing.Trace) -> str:
    return " ".join(memory.warnings(trace))


# ---- what is sampled


@pytest.mark.slow
def test_main_and_its_workers_are_sampled(run: Callable[[str], tracing.Trace]) -> None:
    trace = run("kept")
    main, worker = memory.sampled_processes(trace)
    assert (main.name, main.worker, main.pid) == ("main", -1, trace.about["pid"])
    assert (worker.name, worker.worker) == ("worker 0", 0)
    assert worker.pid == int(trace.events["value"][trace.events["kind"] == Kind.WORKER_BEGIN][0])
    for each in (main, worker):
        sizes = each.samples
        assert (sizes["private"] <= sizes["pss"]).all() and (sizes["pss"] <= sizes["rss"]).all()
        assert (sizes["private"] > 0).all() and (sizes["open_files"] > 3).all() and (sizes["mappings"] > 50).all()


def test_a_sample_holds_what_psutil_finds() -> None:
    rss, pss, private, files, mappings, most_files, most_mappings = watch._memory()
    process = psutil.Process()
    full = process.memory_full_info()
    assert abs(rss - full.rss) < 0.05 * full.rss and abs(pss - full.pss) < 0.05 * full.pss
    assert abs(private - full.uss) < 0.05 * full.uss and abs(files - process.num_fds()) <= 2
    assert abs(mappings - len(process.memory_maps(grouped=False))) < 20
    assert most_files == process.rlimit(psutil.RLIMIT_NOFILE)[0] and most_mappings > 1000


def test_without_memory_there_are_no_samples(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run.trace"):
        list(minidl.DataLoader(range(4), num_workers=1))
    trace = tracing.load(tmp_path / "run.trace")
    assert len(trace.samples) and memory.warnings(trace) == [] and memory.sampled_processes(trace) == []


# ---- what is warned of


@pytest.mark.slow
def test_python_objects_are_copied_and_an_array_is_not(run: Callable[[str], tracing.Trace]) -> None:
    assert "Worker 0's private memory grew by" in warned(run("objects")) and "reference count" in warned(run("objects"))
    assert warned(run("array")) == ""


@pytest.mark.slow
def test_a_cache_is_not_taken_for_copies(run: Callable[[str], tracing.Trace]) -> None:
    assert "It keeps what it makes" in warned(run("caching")) and "reference count" not in warned(run("caching"))


@pytest.mark.slow
def test_a_main_that_keeps_batches_gets_a_warning_before_the_limit(run: Callable[[str], tracing.Trace]) -> None:
    warning = warned(run("kept"))
    assert "Main holds 1.0 more" in warning and "keep copies instead" in warning
    samples = memory.sampled_processes(run("kept"))[0].samples
    field = "open_files" if "open files" in warning else "mappings"
    left = int(warning.split(": after ")[1].split()[0].replace(",", ""))
    assert left == pytest.approx(samples[f"most_{field}"][0] - samples[field].max(), rel=0.2)
    assert warned(run("copied")) == ""


@pytest.mark.slow
def test_the_report_has_the_warnings(run: Callable[[str], tracing.Trace]) -> None:
    assert memory.warnings(run("objects"))[0] in tracing.report(run("objects")).notes


# ---- in the timeline


@pytest.mark.slow
def test_the_timeline_draws_the_samples(run: Callable[[str], tracing.Trace]) -> None:
    trace = run("kept")
    figure = tracing.timeline(trace)
    drawn = {axes.get_gid(): axes for axes in figure.axes}
    main, worker = memory.sampled_processes(trace)
    lines = drawn["memory (MB)"].get_lines()
    for line, process in zip(lines, (main, worker), strict=False):
        shown = process.samples["pss"] / 2**20
        assert np.isin(line.get_ydata(), shown).all() and len(line.get_ydata()) >= len(shown) - 1
    assert drawn["memory (MB)"].get_xlim() == drawn["lanes"].get_xlim()
    assert [text.get_text() for text in drawn["memory (MB)"].get_legend().get_texts()] == ["main", "worker 0"]
