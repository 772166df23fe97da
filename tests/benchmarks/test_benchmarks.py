"""The benchmarks measure what they claim to. No test here judges a speed."""

from __future__ import annotations

import multiprocessing
import subprocess
from pathlib import Path
from typing import Any

import pytest

from docs.make.markers import between_markers
from tests.benchmarks import loading, overhead, recording, watching
from tests.benchmarks.__main__ import TABLES, Effort
from tests.benchmarks.table import Table, as_markdown, verdict
from tests.benchmarks.turns import Comparison, in_turns

pytestmark = pytest.mark.timeout(60)


def test_speed_is_a_ratio_of_medians_and_spread_one_of_turns() -> None:
    taken = Comparison(first=[2.0, 4.0, 90.0], second=[1.0, 2.0, 2.0])
    assert taken.speed == 2.0
    assert taken.spread == (2.0, 23.5)  # quartiles of 2, 2, 45


def test_turns_alternate_which_goes_first() -> None:
    calls = []

    def first() -> float:
        calls.append("first")
        return 1.0

    def second() -> float:
        calls.append("second")
        return 2.0

    assert in_turns(first, second, turns=3) == Comparison([1.0] * 3, [2.0] * 3)
    assert calls == ["first", "second", "second", "first", "first", "second"]


def test_a_verdict_compares_with_a_goal() -> None:
    assert verdict(0.98, 0.97) == "0.97 met"
    assert (verdict(0.96, 0.97), verdict(61, 60, at_most=True)) == ("0.97 missed", "60 missed")


@pytest.mark.parametrize("kind", loading.BOTH, ids=["torch", "minidl"])
@pytest.mark.parametrize("cell", loading.CELLS, ids=lambda cell: cell.name)
def test_a_cell_is_what_its_name_says(kind: Any, cell: loading.Cell) -> None:
    batch = next(iter(loading.open_loader(kind, cell, 0)))
    tensors = list(batch.values()) if isinstance(batch, dict) else [batch]
    sample = next(iter(cell.sample.values())) if isinstance(cell.sample, dict) else cell.sample
    assert all(tensor.shape == (cell.batch_size, *sample.shape) for tensor in tensors)
    assert len(tensors) == (100 if "leaves" in cell.name else 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_comparison_measures_both(workers: int) -> None:
    taken = loading.compare_throughput(loading.BOTH, loading.SMALLEST, workers, seconds=0.001, turns=2)
    assert len(taken.first) == len(taken.second) == 2
    assert min(taken.first + taken.second) > 0
    assert min(loading.compare_first_batch(loading.SMALLEST, 1, turns=1).second) > 0


def test_recording_is_compared_and_read_back(tmp_path: Path) -> None:
    taken = recording.compare_recording(1, seconds=0.001, turns=1)
    assert min(taken.first + taken.second) > 0
    assert recording.ns_per_recorded_emit(1000) > recording.ns_per_emit(1000)
    recording.record_events(tmp_path / "long.trace", 20_000)
    reading = recording.read(tmp_path / "long.trace")
    assert 20_000 <= reading.events < 30_000
    assert reading.load > 0
    assert reading.state > 0


@pytest.mark.full
@pytest.mark.timeout(120)
def test_whole_programs_are_compared_with_and_without_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, run = [], subprocess.run

    def noted(command: list[str], **options: Any) -> Any:
        recorded.append("tracing" in command)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    taken = overhead.compare_programs(1.0, workers=1, seconds=0.05)
    assert recorded == [True, False, False, True]  # once each to see how long a batch takes
    assert min(taken.median_first, taken.median_second) > 0.05


def test_a_page_keeps_what_is_around_the_markers() -> None:
    begin, end = "<!-- speeds: begin -->", "<!-- speeds: end -->"
    table = Table("Speed", ("what", "ratio"), [("loads", "1.00")])
    text = as_markdown([table], "make it")
    page = between_markers(f"before\n{begin}\nold\n{end}\nafter\n", text, "speeds")
    assert page.startswith(f"before\n{begin}\nMade by `make it` on ")
    assert page.endswith(f"| loads | 1.00 |\n{end}\nafter\n")
    assert between_markers(page, text, "speeds") == page
    for damaged in ("", begin, f"{end}{begin}", begin + page):
        with pytest.raises(ValueError, match="the page needs one line"):
            between_markers(damaged, text, "speeds")


@pytest.mark.slow
def test_a_live_view_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork = multiprocessing.get_context("fork")  # a spawned run would import torch first
    monkeypatch.setattr(watching, "get_context", lambda method: fork)
    taken = watching.watch(tmp_path / "run.trace", seconds=0.5)
    assert 0 < taken.share < 1
    assert taken.events > 1000
    assert 0.1 < taken.events_per_second / watching.EVENTS_PER_SECOND < 2  # a busy machine is slower


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["views", "moving", "stopping"])  # programs have a test of their own
def test_every_table_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "place_main", lambda: None)
    least = Effort(
        seconds=0.01, turns=1, program=0.1, emits=100, events=1_000, kills=1, watched=0.5, batches=20, tried=1
    )
    for table in TABLES[name](least):
        assert table.rows and {len(row) for row in table.rows} == {len(table.columns)}
