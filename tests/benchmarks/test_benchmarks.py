"""The benchmarks measure what they claim to. No test here judges a speed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch.utils.data
from rich.console import Console

import minidl
from tests.benchmarks import loading, overhead, recording, simulating, stopping, watching
from tests.benchmarks.table import Table, as_markdown, between_markers, show, verdict
from tests.benchmarks.turns import Comparison, in_turns

pytestmark = pytest.mark.timeout(60)


def test_speed_is_a_ratio_of_medians_and_spread_one_of_turns() -> None:
    taken = Comparison(first=[2.0, 4.0, 90.0], second=[1.0, 2.0, 2.0])
    assert taken.speed == 2.0
    assert taken.spread == (2.0, 23.5)  # quartiles of 2, 2, 45
    assert Comparison([3.0], [2.0]).spread == (1.5, 1.5)


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
    assert verdict(0.96, 0.97) == "0.97 missed"
    assert verdict(61, 60, at_most=True) == "60 missed"


@pytest.mark.parametrize("package", [torch.utils.data, minidl], ids=["torch", "minidl"])
@pytest.mark.parametrize("cell", loading.CELLS, ids=lambda cell: cell.name)
def test_a_cell_is_what_its_name_says(package: ModuleType, cell: loading.Cell) -> None:
    batch = next(loading.open_loader(package, cell, 0))
    tensors = list(batch.values()) if isinstance(batch, dict) else [batch]
    assert all(tensor.shape == (cell.batch_size, *loading_shape(cell)) for tensor in tensors)
    assert len(tensors) == (100 if "leaves" in cell.name else 1)


def loading_shape(cell: loading.Cell) -> tuple[int, ...]:
    sample = next(iter(cell.sample.values())) if isinstance(cell.sample, dict) else cell.sample
    return tuple(sample.shape)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_comparison_measures_both(workers: int) -> None:
    taken = loading.compare_throughput(loading.SMALLEST, workers, seconds=0.001, turns=2)
    assert len(taken.first) == len(taken.second) == 2
    assert min(taken.first + taken.second) > 0
    assert min(loading.compare_first_batch(1, turns=1).second) > 0


@pytest.mark.parametrize("words", stopping.OTHERS)
def test_loaders_that_can_be_stopped_are_compared(words: str) -> None:
    taken = stopping.compare(stopping.OTHERS[words][0], loading.SMALLEST, workers=1, seconds=0.001, turns=1)
    assert min(taken.first + taken.second) > 0


def test_states_are_taken_in_the_middle_of_an_epoch() -> None:
    loader = stopping.open_loader(minidl.StatefulDataLoader, loading.SMALLEST, 1)
    iterator = iter(loader)
    states = [(next(iterator), loader.state_dict())[1] for _ in range(3)]
    assert [state["_snapshot"]["_snapshot_step"] for state in states] == [1, 2, 3]
    assert len(stopping.seconds_in_state_dict(loading.SMALLEST, 1, calls=3)) == 3


def test_recording_is_compared_and_read_back(tmp_path: Path) -> None:
    taken = recording.compare_recording(tmp_path, 1, seconds=0.001, turns=1)
    assert min(taken.first + taken.second) > 0
    assert list(tmp_path.iterdir()) == []  # the traces are gone
    assert recording.ns_per_recorded_emit(tmp_path, 1000) > recording.ns_per_emit(1000)
    recording.record_events(tmp_path / "long.trace", 20_000)
    reading = recording.read(tmp_path / "long.trace")
    assert 20_000 <= reading.events < 30_000
    assert reading.load > 0
    assert reading.state > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_whole_programs_are_compared_with_and_without_a_recording() -> None:
    taken = overhead.measure(1.0, workers=1, seconds=0.05, turns=1)
    for loop, program in ((taken.loop.first, taken.program.first), (taken.loop.second, taken.program.second)):
        assert len(loop) == len(program) == 1
        assert 1e-3 <= loop[0] < program[0] / taken.batches  # a batch is made for a millisecond


def test_a_table_in_a_pipe_is_plain_text() -> None:
    table = Table("Speed", ("what", "ratio", "goal"), [("loads", "0.50", "0.97 missed")])
    console = Console(width=80)
    with console.capture() as capture:
        show(table, console)
    text = capture.get()
    assert text.isascii()
    assert "\x1b" not in text
    assert "0.97 missed" in text


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
def test_a_live_view_is_watched(tmp_path: Path) -> None:
    taken = watching.watch(tmp_path / "run.trace", seconds=0.5)
    assert 0 < taken.share < 1
    assert taken.events > 1000
    assert 0.1 < taken.events_per_second / watching.EVENTS_PER_SECOND < 2  # a busy machine is slower


def test_schedules_are_counted() -> None:
    taken = simulating.measure(50, delays=1)
    assert taken.schedules == 50
    assert min(taken.seconds, taken.exhausted) > 0
