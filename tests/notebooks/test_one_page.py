"""notebooks/one_page.py: torch's batches, in order, with a bounded number under way, and nothing left behind; also
without the lines that emit events. And what the notebooks run it with: show.record."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import types
from typing import Any

import matplotlib.figure
import psutil
import pytest
import torch
import torch.utils.data

import tracing
from minidl.events import Kind
from notebooks import one_page, show

PLAIN = show.without_events(inspect.getsource(one_page))


class Squares:
    """Sample k is {"key": k, "square": [k * k] * 3}."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: int) -> dict[str, Any]:
        return {"key": key, "square": torch.full((3,), key * key)}


def plain() -> Any:
    """The page as a module, without its events."""
    module = types.ModuleType("plain_page")
    exec(compile(PLAIN, "plain_page", "exec", dont_inherit=True), module.__dict__)
    return module


def as_lists(batches: Any) -> list[Any]:
    return [{name: value.tolist() for name, value in batch.items()} for batch in batches]


SOMETHING_CAME = multiprocessing.get_context("fork").Event()


class LateFirst(Squares):
    """Sample 0 is done when main has received another batch."""

    def __getitem__(self, key: int) -> dict[str, Any]:
        return super().__getitem__(key) if key or SOMETHING_CAME.wait(30) else {}


class Telling(one_page.DataLoader):
    def receive(self) -> tuple[int, Any]:
        received = super().receive()
        SOMETHING_CAME.set()
        return received


def last_square(samples: list[Any]) -> dict[str, Any]:
    return {"key": samples[-1]["square"]}


@pytest.mark.parametrize("page", [one_page, plain()], ids=["as it is", "without events"])
@pytest.mark.parametrize(
    ("count", "options"),
    [
        (10, {"batch_size": 2}),
        (10, {"batch_size": 3, "num_workers": 2}),
        (10, {"num_workers": 3, "prefetch_factor": 1}),
        (10, {"batch_size": 2, "num_workers": 1, "prefetch_factor": 4}),
        (3, {"batch_size": 2, "num_workers": 4}),
        (10, {"batch_size": 4, "num_workers": 2, "sampler": [7, 1, 8, 2, 8, 1, 0]}),
        (10, {"batch_size": 2, "num_workers": 2, "collate_fn": last_square}),
        (0, {"num_workers": 2}),
    ],
    ids=lambda each: (
        str({k: getattr(v, "__name__", v) for k, v in each.items()}) if isinstance(each, dict) else str(each)
    ),
)
def test_it_gives_torchs_batches_in_every_epoch(page: Any, count: int, options: dict[str, Any]):
    ours = page.DataLoader(Squares(count), **options)
    options = {"multiprocessing_context": "fork" if options.get("num_workers") else None, **options}
    theirs = as_lists(torch.utils.data.DataLoader(Squares(count), **options))  # type: ignore[arg-type]
    assert [as_lists(ours) for _ in range(2)] == [theirs, theirs]
    assert not multiprocessing.active_children()


def test_it_has_80_lines_and_those_that_report():
    assert len(PLAIN.splitlines()) <= 80
    assert "emit" not in PLAIN.partition('"""\n')[2] and "minidl" not in PLAIN
    assert all(len(line) <= 120 for line in PLAIN.splitlines())


def load(**options: Any) -> Any:
    return lambda: list(one_page.DataLoader(Squares(12), num_workers=2, **options))


@pytest.mark.parametrize("workers", [0, 2])
def test_its_trace_keeps_the_rules_and_can_be_drawn(workers: int):
    trace = show.record(lambda: list(one_page.DataLoader(Squares(12), num_workers=workers)))
    assert tracing.check(trace) == []
    assert trace.tasks["task"].tolist() == list(range(12)) and (trace.tasks["yielded"] > 0).all()
    assert isinstance(tracing.timeline(trace), matplotlib.figure.Figure)


def test_a_batch_that_comes_early_waits_for_its_turn():
    seen: list[int] = []
    loader = Telling(LateFirst(8), num_workers=2)
    trace = show.record(lambda: seen.extend(batch["key"].item() for batch in loader))
    assert seen == list(range(8)) and tracing.check(trace) == []
    assert 0 < trace.tasks["stored"][1] < trace.tasks["received"][0]


@pytest.mark.parametrize("prefetch_factor", [1, 3])
def test_no_more_is_under_way_than_was_asked_for(prefetch_factor: int):
    kinds = show.record(load(prefetch_factor=prefetch_factor)).events["kind"]
    under_way = (kinds == Kind.DISPATCHED).cumsum() - (kinds == Kind.YIELDED).cumsum()
    # A batch's successor is sent before it is handed out: one more for that moment.
    assert under_way.max() == 2 * prefetch_factor + 1


# ---- what the notebooks run it with


def test_a_recorded_program_that_waits_for_ever_is_stopped(capsys: pytest.CaptureFixture[str]):
    trace = show.record(lambda: multiprocessing.get_context("fork").Queue().get(), limit=0.2)
    assert len(trace) == 0
    assert capsys.readouterr().out == "stopped after 0.2 s: it would wait for ever\n"


def test_workers_that_a_recorded_program_leaves_behind_are_counted_and_ended(capsys: pytest.CaptureFixture[str]):
    show.record(lambda: next(iter(one_page.DataLoader(Squares(12), num_workers=2))))
    assert capsys.readouterr().out == "workers left behind: 2\n"
    assert not multiprocessing.active_children()


def test_what_a_recorded_program_raises_is_raised_and_leaves_nothing():
    with pytest.raises(IndexError):
        show.record(lambda: list(one_page.DataLoader(Squares(4), sampler=[0], num_workers=1)) and [][0])
    assert not multiprocessing.active_children()


def test_only_what_reports_is_left_out_of_a_source():
    source = "from minidl import events\n\nx = 1\nif x:\n    emit(x)\nif x:\n    y = 2\n    emit(\n        y,\n    )\n"
    assert show.without_events(source) == "\nx = 1\nif x:\n    y = 2"


def after_signal(number: int, loader: Any, group: bool, patience: float = 5) -> tuple[int, int]:
    """A program begins to iterate a loader, and gets a signal: its whole group, as from a terminal, or main alone. How
    many tracebacks it prints, and how many of its workers are still there `patience` seconds later (they are ended)."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryFile("w+") as errors:
        begun = fork.Semaphore(0)
        main = fork.Process(target=_iterate, args=(loader, begun, errors))
        main.start()
        begun.acquire(timeout=30)
        time.sleep(0.2)  # until each worker waits: a signal just before a read that blocks would be noted after it only
        workers = psutil.Process(main.pid).children()
        (os.killpg if group else os.kill)(main.pid or 0, number)
        left = psutil.wait_procs(workers, timeout=patience)[1]
        alive = [worker for worker in left if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
        for worker in alive:
            worker.kill()
        main.join(20)  # not before: as long as its workers live, they hold open what shows its end
        errors.seek(0)
        return errors.read().count("Traceback ("), len(alive)


def _iterate(loader: Any, begun: Any, errors: Any) -> None:
    os.setsid()  # as a terminal starts it: with a group of its own
    sys.stderr = errors
    try:
        for number, _ in enumerate(loader, 1):
            if number == 2 * loader.num_workers:  # all workers have been at work: a long training step
                begun.release()
                while True:
                    time.sleep(0.01)
    finally:  # main would end its workers before they have printed all
        for worker in multiprocessing.active_children():
            worker.join()


def test_a_program_with_the_page_prints_a_traceback_for_each_process_and_leaves_orphans_when_it_is_killed():
    loader = one_page.DataLoader(range(10**9), num_workers=2, collate_fn=list)
    assert after_signal(signal.SIGINT, loader, group=True) == (3, 0)
    assert after_signal(signal.SIGKILL, loader, group=False, patience=1) == (0, 2)
    assert not multiprocessing.active_children()
