"""The report: numbers that agree with the trace, its text and its JSON, and how the run ended. (Which cause it names,
and what to do: see test_verdicts.)"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import minidl
import tracing
from tests.minidl.dying import die
from tests.minidl.programs import TORCH
from tests.samples import Samples, failing, napping
from tests.tracing import report_loads as loads
from tests.tracing.forked import forked
from tests.tracing.loads import Recorded
from tracing.analysis.notes import caveats
from tracing.recording import watch
from tracing.recording.torch_loader import iterators
from tracing.trace.words import GLOSSES


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tracing.Trace:
    """Two epochs with batches out of order."""
    path = tmp_path_factory.mktemp("report") / "run.trace"
    return loads.record(path, Samples(40, loads.one_in_ten_is_slow), epochs=2, num_workers=2, batch_size=2)


# ---- numbers


def test_the_slowest_batches_come_with_their_keys(trace: tracing.Trace) -> None:
    slowest = tracing.report(trace).loaders[0].slowest
    assert [each["made_ns"] for each in slowest] == sorted((each["made_ns"] for each in slowest), reverse=True)
    assert len(slowest) == 10
    late = {tuple(each["keys"]) for each in slowest[:8]}  # four in each epoch hold a slow sample
    assert late == {(6, 7), (16, 17), (26, 27), (36, 37)}


# ---- text and notes


def test_the_json_agrees_with_the_text(trace: tracing.Trace) -> None:
    found = tracing.report(trace)
    document = json.loads(found.to_json())
    assert document["format"] == 2
    (loader,) = document["loaders"]
    assert loader["verdict"] == "hold_up" and loader["sentence"] in " ".join(str(found).split())
    assert loader["batches"] == 40 and loader["epochs"] == 2 and len(loader["workers"]) == 2
    assert all(0 <= event < len(trace) for reason in loader["why"] for span in reason["spans"] for event in span)


def test_the_text_fits_a_terminal(trace: tracing.Trace) -> None:
    lines = [line for line in str(tracing.report(trace)).split("\n") if str(trace.path) not in line]
    assert max(map(len, lines)) <= 80


def test_every_row_has_its_gloss(recorded: Recorded) -> None:
    """In the tables of where time went and of the stages, for loads that between them have all the rows."""
    rows = set()
    for name in ("pinned", "serial", "in_order"):
        found = tracing.report(recorded(name))
        text = " ".join(str(found).split())
        for loader in found.loaders:
            times = [key.replace("startup", "start-up") for key, ns in loader.main_ns.items() if ns]
            for row in (*loader.stages_ns, *times):
                assert GLOSSES[row] in text
                rows.add(row)
    assert rows == set(GLOSSES)


FIRST = "Fix that first: batch"
MISSING = Samples(30, at={9: failing(KeyError("no such image"))})
FAILURES = {  # -> dataset, options, the first note's end, how the advice begins, more of it
    "at once": (
        Samples(30, at={0: failing(ZeroDivisionError("by zero"))}), {"num_workers": 1}, "ZeroDivisionError: by zero$",
        f"{FIRST} 0 on worker 0", "",
    ),
    "in a worker": (MISSING, {"num_workers": 2}, "KeyError: 'no such image'$", f"{FIRST} 9 on worker", "(keys [9])"),
    "of several lines": (
        Samples(9, at={3: failing(ArithmeticError("a\n  b\n\tc"))}), {"num_workers": 2}, ": ArithmeticError: a$",
        f"{FIRST} 3 on worker", "",
    ),
    "in main": (MISSING, {"batch_size": None}, r"KeyError\('no such image'\)$", f"{FIRST} 9 in", "(keys [9])"),
    "in collate_fn": (
        Samples(30, lambda key: torch.zeros(2 if key == 10 else 1)), {"num_workers": 2, "batch_size": 4},
        "entry 2$", f"{FIRST} 2 on worker 0", "(keys [8, 9, 10, 11]; entry 0 is 8; entry 2 is 10)",
    ),
    "of nothing": (
        Samples(30, lambda key: None if key == 10 else torch.ones(1)), {"num_workers": 2, "batch_size": 4}, "NoneType",
        f"{FIRST} 2 on worker 0", ", as a sample is None (keys [8, 9, 10, 11])",
    ),
    "a death": (
        Samples(30, at={9: functools.partial(die, "SIGKILL")}), {"num_workers": 2},
        "DataLoader worker .*is killed by signal", FIRST, "was with the worker that died (keys [",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_is_reported_first_once_and_in_one_line(tmp_path: Path, name: str) -> None:
    dataset, options, noted, begins, more = FAILURES[name]
    with tracing.record(tmp_path / "run.trace"), pytest.raises((ArithmeticError, KeyError, RuntimeError, TypeError)):
        list(minidl.DataLoader(dataset, **options))
    found = tracing.report(tracing.load(tmp_path / "run.trace"))
    (note,) = (each for each in found.notes if re.search(noted, each))
    assert found.notes[0] == note and note.startswith("The epoch ended with an error") and "\n" not in note
    assert (" at samples.py:" in note) == (name in ("at once", "in a worker", "of several lines"))
    (advice,) = found.loaders[0].next
    assert advice.startswith(begins) and more in advice
    assert ("num_workers=0" in advice) == ("num_workers" in options and name not in ("in collate_fn", "of nothing"))
    text = " ".join(str(found).split())
    assert text.startswith("Note: The epoch ended") and "The run ended early: see the note. Why" in text


def changed_in_main() -> None:
    dataset: Any = Samples(8)
    dataset.best, dataset.files = math.nan, []
    loader = TORCH.DataLoader(dataset, num_workers=1, persistent_workers=True)
    list(loader)
    dataset.size, dataset.files = 4, [1]
    list(loader)


class Whole(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def one_position() -> None:
    file = open(__file__, "rb")  # noqa: SIM115
    dataset: Any = Samples(24, lambda key: file.seek(key))
    dataset.archive = SimpleNamespace(fp=file)  # like zipfile's
    list(TORCH.DataLoader(dataset, batch_size=12, num_workers=2))


def cycled() -> None:
    iterators._loaders = itertools.count()  # as in a process of its own
    list(itertools.islice(itertools.cycle(TORCH.DataLoader(Samples(8), 4)), 3))


def keeps_batches() -> None:
    assert len([torch.ones(2 << 20) for _ in TORCH.DataLoader(Samples(24, napping(0.1)))]) == 24


def copies_objects() -> None:
    names = [str(key) for key in range(3_000_000)]
    list(TORCH.DataLoader(Samples(12, lambda key: time.sleep(0.1) or sum(map(len, names[key::12]))), num_workers=1))


def leaves_an_alarm() -> None:
    def late(*_: object) -> None:
        raise TimeoutError("a sample took too long")

    def limits(worker_id: int) -> None:
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 0.3)

    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        for _ in TORCH.DataLoader(Samples(8), num_workers=1, worker_init_fn=limits):
            time.sleep(5)


@pytest.mark.parametrize(
    ("program", "note"),
    [
        (leaves_an_alarm, "Worker 0 left its loop with an error at test_report.py:"),
        (keeps_batches, "Main's memory grew by "),
        (copies_objects, "A worker's memory grew by "),
        (cycled, "An itertools.cycle repeats the first pass over a loader"),
        (lambda: list(TORCH.DataLoader(Samples(3), 4, drop_last=True)), "An epoch of loader "),
        (lambda: list(TORCH.DataLoader(Samples(8, at={3: failing(StopIteration())}))), "StopIteration at "),
        (changed_in_main, "Main has changed the dataset since its workers started (files, size)."),
        (lambda: list(TORCH.DataLoader(Whole(), num_workers=2)), "Where Whole is defined, nothing calls get_w"),
        (one_position, "Forked workers share the position in an open file of the dataset (archive.fp)"),
    ],
)
def test_a_silent_mistake_is_noted(tmp_path: Path, program: Any, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caveats, "LARGE", 20 << 20)
    for name in ("COST", "WEIGH", "WEIGHING_COST"):  # ten times a second
        monkeypatch.setattr(watch, name, 0)
    with tracing.record(tmp_path / "run.trace"):
        program()
    assert [each[: len(note)] for each in tracing.report(tracing.load(tmp_path / "run.trace")).notes] == [note]


def test_what_cannot_be_pickled_is_advised_on(tmp_path: Path) -> None:
    dataset = Samples(4, threading.Lock())  # type: ignore[arg-type]
    with pytest.raises(TypeError), tracing.record(tmp_path / "run.trace"):
        iter(TORCH.DataLoader(dataset, num_workers=1, multiprocessing_context="spawn"))
    found = tracing.report(tracing.load(tmp_path / "run.trace"))
    assert found.notes[0].startswith("The program ended with TypeError") and "__getstate__" in found.loaders[0].next[0]


def test_an_error_that_the_training_survives_leaves_the_advice(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run.trace"):
        batches = iter(minidl.DataLoader(MISSING, num_workers=2))
        for _ in range(9):
            next(batches)
        with pytest.raises(KeyError):
            next(batches)
        list(batches)
    found = tracing.report(tracing.load(tmp_path / "run.trace"))
    assert found.notes[0].startswith("The loader raised, and the training went on") and found.loaders[0].next


def test_what_ends_in_a_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two"), tracing.record(tmp_path / "run.trace"):
        for number, _ in enumerate(TORCH.DataLoader(Samples(5), 2)):
            if number == 2:
                raise ValueError("two")
    found = tracing.report(tracing.load(tmp_path / "run.trace"))
    assert re.match("The program ended with ValueError at .*: two. ", found.notes[-1]) and found.loaders[0].ended_early
    assert "batch 2 was the last that main had (keys [4]), a small one" in found.loaders[0].next[0]


def dies_in_a_step() -> None:
    time.sleep(0.5)  # it was asked for when main was about to begin its step
    die("SIGKILL")


@pytest.mark.parametrize(
    ("step", "noted"),
    [
        (lambda: list(TORCH.DataLoader(Samples(4, napping(0.5)))), r"The epoch ended with an error \[event \d+\]"),
        (lambda: time.sleep(2), r"The program ended with RuntimeError at test_report.py:\d+, <lambda>"),
    ],
)
def test_a_loader_whose_worker_died_comes_first(tmp_path: Path, step: Callable[[], Any], noted: str) -> None:
    """Also if main was in another one then, to evaluate, or in none."""
    with pytest.raises(RuntimeError, match="is killed by signal"), tracing.record(tmp_path / "run.trace"):
        for _ in TORCH.DataLoader(Samples(99, at={3: dies_in_a_step}), num_workers=1):
            step()
    found = tracing.report(tracing.load(tmp_path / "run.trace"))
    first = found.loaders[0]
    assert first.ended_early and first.config["num_workers"] == 1
    assert re.match(rf"{noted}: DataLoader worker \(pid \d+\) is killed", found.notes[0])
    assert "Fix that first: batch 3 on worker 0 was with the worker that died (keys [3])." in first.next[0]


def test_that_main_was_killed_comes_first(tmp_path: Path) -> None:
    found = tracing.report(loads.main_is_killed(tmp_path / "run.trace"))
    assert found.first_lines()[0].startswith("Note: Main was killed in the middle of an epoch, after 6 batches")
    assert sum("killed" in note for note in found.notes) == 1
    loader, _ = found.loaders
    assert loader.verdict_line.startswith("The run ended early: see the note.") and loader.why


def test_an_empty_trace_is_no_error(nothing: tracing.Trace) -> None:
    text = str(tracing.report(nothing))
    assert text.startswith("No loader was recorded.") and "while the recording was on" in text


def test_a_report_can_be_made_at_any_moment_of_a_run(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run.trace"):
        for number, _batch in enumerate(minidl.DataLoader(Samples(20), num_workers=2), 1):
            (loader,) = tracing.report(tracing.load(tmp_path / "run.trace")).loaders
            assert loader.batches == number


WAITS = """
from torch.utils.data import DataLoader
from tests.samples import Samples, napping

list(DataLoader(Samples(20, napping(0.02)), num_workers=1))
"""


def test_what_run_prints_at_its_end_is_how_the_report_of_the_trace_begins(tmp_path: Path) -> None:
    """And what of main's time was in the loader is one number, wherever it is shown."""
    (tmp_path / "train.py").write_text(WAITS)
    _, printed_by_run = forked(tmp_path, "-m", "tracing", "run", "-o", "trace", "train.py")
    printed, _ = forked(tmp_path, "-m", "tracing", "report", "trace")
    trace = tracing.load(tmp_path / "trace")
    first = "\n".join(tracing.report(trace).first_lines())
    assert printed.replace("timeline trace", f"timeline {trace.path}").startswith(first)
    assert first in re.sub(r"[\w/.-]+python -m", "python -m", printed_by_run)
    share = f"{tracing.whatif(trace, 1, 2).recorded.in_loader:.0%}"
    assert f"({share}) in the loader" in " ".join(first.split()) and f"; {share} of it in the loader" in printed
