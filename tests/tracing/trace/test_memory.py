"""Memory beside the batches: real processes whose memory grows, or does not, for known reasons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

import minidl
import tracing
from minidl.events import Kind
from tracing.recording import file_format as fmt
from tracing.recording import memory_sampler as sampler
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
    samples = trace.memory
    assert samples.dtype == memory.MEMORY_DTYPE and (np.diff(samples["time"]) >= 0).all()
    main, worker = memory.sampled_processes(trace)
    assert (main.name, main.worker, main.pid) == ("main", -1, trace.about["pid"])
    assert (worker.name, worker.worker) == ("worker 0", 0)
    assert worker.pid == int(trace.events["value"][trace.events["kind"] == Kind.WORKER_BEGIN][0])
    for each in (main, worker):
        sizes = each.samples
        assert (sizes["private"] <= sizes["pss"]).all() and (sizes["pss"] <= sizes["rss"]).all()
        assert (sizes["private"] > 0).all() and (sizes["open_files"] > 3).all() and (sizes["mappings"] > 50).all()


def test_a_sample_holds_what_psutil_finds() -> None:
    _, pid, rss, pss, private, files, mappings, shared, most_files, most_mappings = sampler.sample(os.getpid())
    process = psutil.Process()
    full = process.memory_full_info()
    assert pid == process.pid and abs(rss - full.rss) < 0.05 * full.rss and abs(pss - full.pss) < 0.05 * full.pss
    assert abs(private - full.uss) < 0.05 * full.uss and abs(files - process.num_fds()) <= 2
    assert abs(mappings - len(process.memory_maps(grouped=False))) < 20 and shared >= 0
    assert most_files == process.rlimit(psutil.RLIMIT_NOFILE)[0] and most_mappings > 1000


@pytest.mark.slow
def test_each_batch_that_is_kept_is_a_mapping_and_an_open_file(run: Callable[[str], tracing.Trace]) -> None:
    samples = memory.sampled_processes(run("kept"))[0].samples
    yields = run("kept").events["time"][run("kept").events["kind"] == Kind.YIELDED]
    had = np.searchsorted(yields, samples["time"])  # batches, by then
    quiet = (np.diff(had, prepend=-1) == 0) & (had > 0) & (had < len(yields))  # no batch came during the sample
    for field in ("shared_mappings", "open_files"):
        more = np.diff(samples[field][quiet])
        assert len(more) >= 2 and abs(more - np.diff(had[quiet])).max() <= 2
    assert len(set(had[quiet].tolist())) >= 2
    assert memory.sampled_processes(run("copied"))[0].samples["shared_mappings"].max() < 30


def test_without_memory_there_are_no_samples(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run.trace"):
        list(minidl.DataLoader(range(4), num_workers=1))
    trace = tracing.load(tmp_path / "run.trace")
    assert len(trace.memory) == 0 and memory.warnings(trace) == [] and memory.sampled_processes(trace) == []


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


# ---- how it ends


@pytest.mark.slow
def test_the_samples_of_a_killed_main_are_kept(run: Callable[[str], tracing.Trace]) -> None:
    """And the sampler has ended by itself."""
    trace = run("killed")
    assert len(memory.sampled_processes(trace)[0].samples) >= 2
    deadline = time.monotonic() + 5
    while sampler_of(trace) is not None and time.monotonic() < deadline:
        pass
    assert sampler_of(trace) is None


def sampler_of(trace: tracing.Trace) -> psutil.Process | None:
    """The living process that writes samples into this trace."""
    for process in psutil.process_iter():
        try:
            if str(trace.path / fmt.MEMORY) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                return process
        except psutil.NoSuchProcess:
            pass
    return None


@pytest.mark.slow
def test_an_unfinished_sample_is_left_out(run: Callable[[str], tracing.Trace], tmp_path: Path) -> None:
    whole = run("kept").memory
    (tmp_path / fmt.MEMORY).write_bytes((run("kept").path / fmt.MEMORY).read_bytes()[:-7])
    assert (memory.read(tmp_path) == whole[: len(whole) - 1]).all() or len(memory.read(tmp_path)) == len(whole) - 1


def test_ctrl_c_does_not_stop_the_sampler(tmp_path: Path) -> None:
    """It takes its last sample when the recording ends."""
    with pytest.raises(KeyboardInterrupt), tracing.record(tmp_path / "run.trace", memory=True):
        list(minidl.DataLoader(range(4), num_workers=1))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    trace = tracing.load(tmp_path / "run.trace")
    assert trace.memory["time"][-1] > trace.events["time"][-1] and sampler_of(trace) is None


# ---- in the timeline


@pytest.mark.slow
def test_the_timeline_draws_the_samples(run: Callable[[str], tracing.Trace]) -> None:
    trace = run("kept")
    figure = tracing.timeline(trace)
    drawn = {axes.get_gid(): axes for axes in figure.axes}
    assert {"memory (MB)", "open files of main", "mappings of main"} <= set(drawn)
    main, worker = memory.sampled_processes(trace)
    lines = drawn["memory (MB)"].get_lines()
    for line, process in zip(lines, (main, worker), strict=False):
        shown = process.samples["pss"] / 2**20
        assert np.isin(line.get_ydata(), shown).all() and len(line.get_ydata()) >= len(shown) - 1
    assert drawn["memory (MB)"].get_xlim() == drawn["lanes"].get_xlim()
    assert [text.get_text() for text in drawn["memory (MB)"].get_legend().get_texts()] == ["main", "worker 0"]
    quiet = {axes.get_gid() for axes in tracing.timeline(run("copied")).axes}
    assert "memory (MB)" in quiet and "mappings of main" not in quiet
