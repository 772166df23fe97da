"""What a report says first, of a load for each cause, and what it must not say; and every number in a reason is what
its events show. Most loads run on the simulated machine, where nothing is by chance; those that need real processes are
real, most of them torch's, with contrasts that no busy machine makes or hides."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import multiprocessing
import multiprocessing.util
import random
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import get_worker_info

import minidl
import tracing
from minidl.world.simulated import compute, simulate, sleep
from tests.minidl.dying import in_a_thread
from tests.minidl.programs import TORCH
from tests.samples import Samples, Stream, dealt, fail, first_of, napping, whole
from tests.tracing import report_loads as loads
from tests.tracing.forked import forked
from tests.tracing.report_loads import Makes, Opens, SlowToPin
from tracing.__main__ import main
from tracing.analysis.measure import cores, culprits
from tracing.analysis.measure.measures import measure
from tracing.analysis.measure.waited import Judgement, Verdict, costs
from tracing.analysis.report.evidence import Number, Reason
from tracing.analysis.report.report import LoaderReport
from tracing.analysis.report.verdicts import TABLE, VERDICTS, advice, facts, slowest_part
from tracing.analysis.whatif import promises
from tracing.recording import file_format as fmt
from tracing.trace.stacks import MAIN, Line, Stack
from tracing.trace.words import duration
from tracing.views.timeline import followed_batch, window


@pytest.fixture(autouse=True)
def looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as its age asks for: on a busy machine a look costs more, and then there are too few to show a line."""
    monkeypatch.setattr("tracing.recording.watch.LOOK_COST", 0)


@dataclass
class Said:
    """What is said of a load: words, and for `unsaid` patterns."""

    verdict: Verdict
    first: str  # in the first advice
    more: tuple[str, ...] = ()  # in the verdict, in the reasons, or in any advice
    unsaid: tuple[str, ...] = ()
    named: str = ""  # how the name of what it is about begins


def check(loader: LoaderReport, expected: Said) -> None:
    said = " ".join([loader.verdict_line, *(reason.text for reason in loader.why), *loader.next])
    assert loader.verdict is expected.verdict and loader.named.startswith(expected.named), vars(loader)
    assert f"({loader.named})" in loader.verdict_line or not loader.named
    assert expected.first in loader.next[0], loader.next
    assert all(words in said for words in expected.more), said
    assert not any(re.search(pattern, said) for pattern in expected.unsaid), said
    options = [each.partition("=")[0] for each in loader.next if "=" in each.split()[0]]
    assert len(set(options)) == len(options), loader.next  # each is named once
    assert expected.verdict is Verdict.TURNS or "turns" not in loader.causes_ns, vars(loader)


# ---- simulated loads


class Keys(minidl.Sampler[int]):
    """It takes 10 ms for each key."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        for key in range(self.n):
            sleep(0.01)
            yield key

    def __len__(self) -> int:
        return self.n


class Sorted(Keys):
    """All the time goes before the first key."""

    def __iter__(self) -> Iterator[int]:
        sleep(0.6)
        yield from range(self.n)


def waits_in_worker_1(longer: float, usual: float) -> None:
    """It has its files somewhere else."""
    info = minidl.get_worker_info()
    sleep(longer if info is not None and info.id == 1 else usual)


def is_quick(index: int) -> None:
    """In memory."""


def waits(index: int) -> None:
    sleep(0.01)


def computes_and_waits(index: int) -> None:
    compute(0.005)
    sleep(0.015)


def pads(samples: list[int]) -> list[int]:
    compute(0.03)
    return samples


def starts_slowly(worker_id: int) -> None:
    sleep(0.3)


def simulated(
    dataset: Any,
    epochs: int = 1,
    step: float = 0.001,
    every: int = 1,
    usual: float = 0.0,
    grows: float = 0.0,
    passes: int = 0,
    leave: int = 1000,
    cpus: int = 2,
    **options: Any,
) -> tracing.Trace:
    """The trace of a training that takes `step` seconds after every `every`-th batch and `usual` after the others, each
    time `grows` more; passes over the first `passes`, and leaves each epoch after `leave` batches."""

    def program() -> None:
        loader = minidl.DataLoader(dataset, **{"num_workers": 2, **options})
        for _ in range(epochs):
            for number, _batch in enumerate(loader, 1):
                if number > passes:
                    sleep((step if number % every == 0 else usual) + number * grows)
                if number == leave:
                    break

    return tracing.load(simulate(program, cpus=cpus, draws=False))


MORE_WORKERS = r"num_workers=\d+ instead"
PERSISTENT = {"epochs": 3, "persistent_workers": True}
KEEPS_UP = Said(Verdict.TRAINING, "The loader keeps up")
SIMULATED: dict[str, tuple[Any, dict[str, Any], Said]] = {
    "waits for something unknown": (  # both workers are always at work
        Makes(80, waits), {"batch_size": 4},
        Said(
            Verdict.WORKERS, "They hardly compute: they wait. If what they wait for serves more",
            ("even beyond the cores", "__getitems__"), (MORE_WORKERS, "keeps what it has read"),
        ),
    ),
    "slower and slower": (
        Makes(80, lambda index: sleep(0.001 * index)), {"num_workers": 1, "batch_size": 2},
        Said(Verdict.WORKERS, "Batches take 7.3 times as long at the end as at the beginning"),
    ),
    "a stream that may not be divided": (
        Stream(Makes(80, computes_and_waits)), {"num_workers": 1, "cpus": 8},
        Said(Verdict.WORKERS, "Of several workers, each must read only its share", (), (MORE_WORKERS,)),
    ),
    # No finished one waits for it.
    "a run that goes on where it was": (
        Makes(60, waits), {"passes": 40, "step": 0.03},
        Said(Verdict.PREFETCH, "Main passed over the first 40 batches", (), ("prefetch_factor=",)),
    ),
    "a last batch alone": (Makes(12, waits), {"batch_size": 4, **PERSISTENT}, Said(Verdict.WORKERS, "")),
    "a batch for each worker": (Makes(8, waits), {"batch_size": 4, **PERSISTENT}, Said(Verdict.WORKERS, "")),
    "epochs of one batch": (Makes(8, waits), {"batch_size": 8, **PERSISTENT}, Said(Verdict.WORKERS, "Batches of an")),
    "computes, on few cores": (
        Makes(80, lambda index: compute(0.01)), {"num_workers": 4},
        Said(Verdict.WORKERS, "More workers would", ("used a core for",), (MORE_WORKERS,), "the cores are busy"),
    ),
    "computes and waits, on many cores": (
        Makes(80, computes_and_waits), {"cpus": 8},
        Said(Verdict.WORKERS, "num_workers=", ("more workers can help, until the 8 cores are busy",)),
    ),
    "a slow collate_fn": (
        Makes(80, is_quick), {"num_workers": 1, "batch_size": 4, "collate_fn": pads},
        Said(Verdict.WORKERS, "", ("Make collate_fn pads",), (), "collate_fn pads (test_verdicts.py:"),
    ),
    "more slow samples than the workers can keep up with": (  # the first one, too
        Makes(48, lambda index: sleep(0.01 if index % 6 else 0.4)), {},
        Said(Verdict.HOLD_UP, "", ("Make the slow samples cheaper.", "Worker 0 did most of", "reorder buffer")),
    ),
    "a few slow samples": (
        Makes(40, lambda index: sleep(0.5 if index % 10 == 7 else 0.005)), {"step": 0.05},
        Said(Verdict.HOLD_UP, "prefetch_factor=", ("in_order=False", "Make the slow samples cheaper. A table")),
    ),
    "independent stragglers": (
        Makes(1600, lambda index: sleep(0.25 if index % 97 == 3 else 0.004)), {"num_workers": 16, "batch_size": 4},
        Said(Verdict.HOLD_UP, "", (), ("lock",)),
    ),
    "one worker is slow": (
        Makes(96, lambda _: waits_in_worker_1(0.02, 0.01)), {"batch_size": 2},
        Said(Verdict.WORKERS, "in_order=False", ("They hardly compute",), (MORE_WORKERS, "prefetch_factor=")),
    ),
    "one worker is far slower": (  # fewer might be the slow one
        Makes(96, lambda _: waits_in_worker_1(0.05, 0.005)), {"num_workers": 3, "step": 0.01},
        Said(Verdict.HOLD_UP, "in_order=False", (), (MORE_WORKERS,)),
    ),
    "bursts": (
        Makes(40, lambda index: sleep(0.04)), {"step": 0.4, "every": 10, "prefetch_factor": 1},
        Said(Verdict.PREFETCH, "prefetch_factor=", ("workers were idle for", "; the training step takes")),
    ),
    "shares of different size": (
        Stream(Makes(60, lambda index: sleep(0.02)), first_of(60, 4)), {"num_workers": 6, "batch_size": 2},
        Said(Verdict.SHARES, "an equal share", (), (MORE_WORKERS, "should")),
    ),
    "no workers": (
        Makes(20, waits), {"num_workers": 0},
        Said(Verdict.NO_WORKERS, "num_workers=", ("made while main trains", "main made every batch itself")),
    ),
    "a collate_fn that computes in main": (
        Makes(80, is_quick), {"num_workers": 0, "batch_size": 4, "collate_fn": pads},
        Said(Verdict.NO_WORKERS, "", ("Make collate_fn pads",), (), "collate_fn pads (test_verdicts.py:"),
    ),
    "a slow pin": (
        Makes(40, is_quick), {"pin_memory": "host", "collate_fn": SlowToPin},
        Said(Verdict.MOVING, "Make pinning cheaper", ("own pin_memory()", "pinning it 20.0 ms")),
    ),
    "a slow sampler": (
        Makes(60, is_quick), {"sampler": Keys(60)},
        Said(Verdict.SAMPLER, "the whole epoch at once", ("drawing keys took",), ("prefetch_factor=",), "Keys"),
    ),
    "a sampler that sorts all keys first": (
        Makes(60, is_quick), {"sampler": Sorted(60), "epochs": 2},
        Said(Verdict.SAMPLER, "Nearly all of that is the first draw of each epoch", (), ("whole epoch at once",)),
    ),
    "keys drawn anew for each batch": (
        Makes(40, is_quick), {"num_workers": 0, "sampler": Keys(40), "batch_size": 4, "epochs": 6, "leave": 1},
        Said(Verdict.SAMPLER, "6 of 6 epochs, begun at test_verdicts.py:", (), ("whole epoch at once",)),
    ),
    "a worker_init_fn": (  # main does not call it
        Makes(6, is_quick), {"epochs": 4, "worker_init_fn": starts_slowly},
        Said(Verdict.STARTUP, "persistent_workers=True", ("each worker worker_init_fn takes",), ("num_workers=0",)),
    ),
    "opens something at its first sample": (
        Opens(8, is_quick), {"epochs": 3},
        Said(Verdict.STARTUP, "persistent_workers=True", ("In each worker making its first batch takes longest.",)),
    ),
    "a shuffle buffer": (
        Stream(Makes(20, is_quick, at={0: lambda: sleep(0.4)})), {"batch_size": 2, "epochs": 2},
        Said(Verdict.STARTUP, "Look at what the dataset's own __iter__ does first", (), ("persistent_workers=True",)),
    ),
    "an iterator for each batch": (
        Makes(400, waits), {"batch_size": 20, "epochs": 6, "leave": 1, "num_workers": 8},
        Said(Verdict.STARTUP, "6 of 6 epochs, begun at test_verdicts.py:", ("left before their end, after 6 batches",)),
    ),
    "epochs that are left early": (
        Makes(800, waits), {"batch_size": 40, "epochs": 3, "leave": 2},
        Said(Verdict.SHUTDOWN, "3 of 3 epochs were left", (), ("at exit", "persistent_workers", "takes longest")),
    ),
    "epochs whose batches main counts": (  # and does not ask for one more
        Makes(80, waits), {"batch_size": 40, "epochs": 3, "leave": 2},
        Said(Verdict.WORKERS, "", (), ("left before",)),
    ),
    "hardly anything in the loader": (
        Makes(40, lambda index: compute(0.01)), {"batch_size": 2, "step": 0.05},
        Said(Verdict.TRAINING, "The loader keeps up", (), (MORE_WORKERS,)),
    ),
    "steps that take longer now and then": (
        Makes(60, is_quick), {"step": 0.3, "every": 15, "usual": 0.01},
        Said(Verdict.TRAINING, "4 of 60 steps take far longer", ("4 of 60 steps took 1.20 s together",)),
    ),
    "longer steps that hardly count": (Makes(60, is_quick), {"step": 0.06, "every": 30, "usual": 0.01}, KEEPS_UP),
    "many steps that take longer": (Makes(60, is_quick), {"step": 0.3, "every": 4, "usual": 0.01}, KEEPS_UP),
    "steps that take longer and longer": (
        Makes(60, is_quick), {"grows": 0.001},
        Said(Verdict.TRAINING, "Steps take 6.0 times as long at the end as at the beginning: look for what grows."),
    ),
    "one long step": (Makes(60, is_quick), {"step": 2, "every": 40, "usual": 0.01}, KEEPS_UP),
    "a long start-up": (  # of one epoch there is nothing to save
        Makes(30, is_quick), {"worker_init_fn": starts_slowly, "step": 0.06},
        Said(Verdict.TRAINING, "The loader keeps up", (), ("persistent_workers",)),
    ),
    "two long start-ups, beside a training": (
        Makes(30, is_quick), {"worker_init_fn": starts_slowly, "step": 0.03, "epochs": 2},
        Said(Verdict.STARTUP, "persistent_workers=True keeps workers", ("for 2 epochs",)),
    ),
    "slow to begin, and nearly as slow to draw": (
        Makes(60, is_quick), {"worker_init_fn": starts_slowly, "sampler": Keys(28)},
        Said(Verdict.SAMPLER, "the whole epoch at once"),
    ),
    "workers that start one after the other": (  # and then are more than enough
        Makes(40, waits),
        {
            "num_workers": 4, "prefetch_factor": 4, "step": 0.05,
            "worker_init_fn": lambda worker_id: sleep(0.6 * (worker_id > 0)),
        },
        KEEPS_UP,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIMULATED)
def test_what_is_said_of_a_simulated_load(name: str) -> None:
    dataset, options, expected = SIMULATED[name]
    trace = simulated(dataset, **options)
    (loader,) = tracing.report(trace).loaders
    check(loader, expected)
    check_numbers(trace, loader)


@pytest.mark.parametrize(("idle", "num_workers"), [(0.05, 0), (0.05, 1), (0.9, 0), (0.9, 1)])
def test_nothing_is_promised_where_other_programs_have_the_cores(idle: float, num_workers: int) -> None:
    """A quarter of the time computes: the rest may be waiting for a core, or not. (Nor is anything promised of first
    workers: they would share the cores with main.)"""
    trace = simulated(Makes(60, computes_and_waits), num_workers=num_workers)
    (measures,) = measure(trace)
    span, samples = np.array([trace.start, int(measures.time[-1])]), np.zeros(2, fmt.SAMPLE_DTYPE)
    samples["pid"], samples["time"] = measures.main_pid, span
    samples["busy"], samples["idle"] = 2 * (1 - idle) * span, 2 * idle * span
    fmt.samples_file(fmt.events_files(trace.path)[0]).write_bytes(samples.tobytes())
    (loader,) = tracing.report(trace).loaders
    crowded = loader.next[-1].startswith("Other programs, or other ranks, use 1.9 of the 2 cores")
    assert crowded == (idle < 0.5) and bool(loader.promises) == (idle > 0.5 and num_workers > 0)


def test_workers_that_are_never_idle_share_the_cores_with_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Main waits little: its step is slow, as it must share them."""

    def program() -> None:
        for _ in minidl.DataLoader(Makes(60, lambda index: compute(0.027)), num_workers=2):
            compute(0.011)

    (measures,) = measure(tracing.load(simulate(program, cpus=2, draws=False)))
    assert 0.05 < sum(costs(measures).values()) / measures.total < 0.15
    assert Judgement(measures).verdict is Verdict.TRAINING  # no samples: what main leaves is not known
    monkeypatch.setattr(cores, "cores_of_main", lambda _: 0.6)
    assert Judgement(measures).verdict is Verdict.WORKERS


def test_a_first_batch_like_any_other_is_no_part_of_a_slow_start() -> None:
    (measures,) = measure(simulated(Makes(2, waits), epochs=6))
    assert slowest_part(measures, usual=10_000_000) == ""


# ---- real loads


class Locked(Samples):
    """One worker at a time."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.lock = multiprocessing.get_context("fork").Lock()

    def __getitem__(self, index: int) -> int:
        with self.lock:
            self.reads(0.01 * (1 + index * index % 7 % 3))
        return index

    def reads(self, seconds: float) -> None:
        """Not always as long: looks come every so many ms, and would find the same worker here each time, or none."""
        time.sleep(seconds)


def elsewhere(key: int) -> torch.Tensor:
    """A tensor that lies at another address in each worker."""
    info = torch.utils.data.get_worker_info()
    time.sleep(0.005)
    KEPT.extend(torch.zeros(100) for _ in range(0 if info is None else info.id))
    KEPT.append(torch.full((8,), key))
    return KEPT[-1]


KEPT: list[torch.Tensor] = []


class SlowState(Samples):
    """It takes long to save its state, which a worker does after each batch."""

    def state_dict(self) -> dict[str, int]:
        time.sleep(0.03)
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Nothing is restored."""


class UnpicklesSlowly(Samples):
    """Its module imports something expensive: a spawned worker does so when it unpickles the dataset."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        importlib.import_module("tests.tracing.expensive")
        vars(self).update(state)


def hashes(index: int) -> int:
    """As a library does that computes with several threads."""
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(hashlib.sha256, [bytes(10_000_000)] * 3))
    return index


@dataclass
class InOne:
    """A batch of a class of its own."""

    tensors: Any


class ByLength(minidl.Sampler[int]):
    """Before it gives the first key it looks at every sample."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(0.8)
        return iter(range(8))


def looks_up(key: int) -> torch.Tensor:
    """One number, for which it reads a whole file."""
    time.sleep(0.01)
    return torch.tensor(Path(np.random.mtrand.__file__).read_bytes()[key])


UNREAD = multiprocessing.get_context("fork").Queue()


def waits_for(words: Any, key: int) -> int:
    return len([words.get(key) for _ in range(30)])


REAL: dict[str, tuple[Any, dict[str, Any], Said]] = {
    "a cache that ends with its worker": (
        Samples(80, functools.cache(napping(0.01))), {"num_workers": 2, "batch_size": 4, "epochs": 2},
        Said(Verdict.WORKERS, "persistent_workers=True keeps what the workers put into make", ("They hardly compute",)),
    ),
    "a lock": (
        Locked(250), {"num_workers": 3, "batch_size": 4},
        Said(
            Verdict.TURNS, "They wait for a lock: more workers do not help",
            ("waited for a lock", "the one that goes on was seen at test_verdicts.py:", "Locked.reads"),
            (MORE_WORKERS,), "at test_verdicts.py:",
        ),
    ),
    "threads of a library": (
        Samples(360, hashes), {"num_workers": 2, "batch_size": 2},  # so long that samples of CPU time miss little of it
        Said(Verdict.WORKERS, "Limit a library's threads in them", (), (r"num_workers=[3-9]",)),
    ),
    "far more is read than a sample needs": (
        Samples(240, looks_up), {"num_workers": 1, "batch_size": 4},
        Said(Verdict.WORKERS, " were read for 1.9 KB of batches. Read only what a sample needs (at test_v"),
    ),
    "programs that a sample runs": (
        Samples(6, lambda key: subprocess.run(["sh", "-c", "while i=${i}x; [ ${#i} -lt 20000 ]; do :; done"])),
        {"num_workers": 0, "collate_fn": len},
        Said(Verdict.NO_WORKERS, "", ("workers share the 2 cores",), (r"num_workers=[3-9]",)),
    ),
    "rows of a table": (
        TORCH.TensorDataset(torch.zeros(500_000, 20)), {"num_workers": 2, "batch_size": 4096},
        Said(Verdict.WORKERS, "The 4096 samples of a batch are made one by one", (), ("more workers can help",)),
    ),
    "rows of a table, made together": (
        TORCH.Subset(TORCH.TensorDataset(torch.zeros(9**6, 20)), range(9**6)), {"num_workers": 2, "batch_size": 4096},
        Said(Verdict.WORKERS, "", (), ("one by one",)),
    ),
    "batches of many tensors": (
        Samples(60, lambda index: {str(key): torch.zeros(2) for key in range(200)}),
        {"num_workers": 1, "batch_size": 4, "collate_fn": lambda samples: InOne(minidl.default_collate(samples))},
        Said(Verdict.MOVING, "", ("A batch has 200 tensors and 0 other Python objects",)),
    ),
    "batches of many objects": (
        Samples(800, lambda index: [{"x": key, "y": index} for key in range(2000)]),
        {"num_workers": 2, "batch_size": 4, "collate_fn": list},
        Said(Verdict.MOVING, "A batch has 0 tensors and 16,000 other Python objects"),
    ),
    "padding": (
        Samples(64, lambda key: torch.arange(100) * (torch.arange(100) < 20 + key % 9)),
        {"batch_size": 8, "step": 0.02},
        Said(Verdict.TRAINING, "76% of a batch's largest tensor is one value at the ends of rows"),
    ),
    "a sampler that begins slowly": (
        Samples(8), {"num_workers": 1, "epochs": 2, "batch_size": None, "sampler": ByLength()},
        Said(Verdict.STARTUP, "Before the first batch of an epoch main is at test_verdicts.py:", ("ByLength",)),
    ),
    "a queue that nobody reads": (
        Samples(4, lambda key: UNREAD.put(bytes(1 << 17))), {"num_workers": 1, "collate_fn": len},
        Said(Verdict.SHUTDOWN, "The workers exit only when what they put into a", (), ("at exit",)),
    ),
    "a thread that goes on when its worker should exit": (
        Samples(1, lambda key: threading.Thread(target=napping(2.5), args=(key,)).start()),
        {"num_workers": 1, "collate_fn": len},
        Said(Verdict.SHUTDOWN, "Look at what worker 0 does at exit (at samples.py:", ("the exiting workers were",)),
    ),
    "imports at unpickling": (
        UnpicklesSlowly(4), {"multiprocessing_context": "spawn", "num_workers": 1, "epochs": 2},
        Said(Verdict.STARTUP, "", ("persistent_workers=True", "importing and unpickling takes longest")),
    ),
}  # fmt: skip
# A second of a core for imports decides what persistent workers would save; threads show only if they have cores.
ALONE = ("imports at unpickling", "threads of a library")


def recorded(path: Path, dataset: Any, package: Any = TORCH, **options: Any) -> tuple[tracing.Trace, LoaderReport]:
    trace = loads.record(path, dataset, package=package, **options)
    (loader,) = tracing.report(trace).loaders
    return trace, loader


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.alone] * (each in ALONE)) for each in REAL])
def test_what_is_said_of_a_real_load(tmp_path: Path, name: str) -> None:
    dataset, options, expected = REAL[name]
    trace, loader = recorded(tmp_path / "run", dataset, **options)
    check(loader, expected)
    check_numbers(trace, loader)


def test_workers_that_wait_for_a_manager(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Manager() as manager:
        dataset = Samples(1200, functools.partial(waits_for, manager.dict()))
        _, loader = recorded(tmp_path / "run", dataset, num_workers=3, batch_size=8)
    check(loader, Said(Verdict.TURNS, "They wait for a multiprocessing.Manager", ("waits_for",), (MORE_WORKERS,)))


def test_a_loader_in_a_thread_is_looked_at_there(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        in_a_thread(lambda: list(TORCH.DataLoader(Samples(40, napping(0.05)))))
    (loader,) = tracing.report(tracing.load(tmp_path / "run")).loaders
    check(loader, Said(Verdict.NO_WORKERS, "", ("samples.py:",), (), "in a thread: main may train meanwhile"))
    assert not loader.promises  # what main does then is not known


def test_a_state_that_takes_long_to_save_is_no_moving(tmp_path: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    with tracing.record(tmp_path / "run"):
        list(stateful.StatefulDataLoader(SlowState(60), num_workers=1))
    trace = tracing.load(tmp_path / "run", strict=True)
    (loader,) = tracing.report(trace).loaders
    assert tracing.check(trace) == []
    check(loader, Said(Verdict.WORKERS, "", ("They hardly compute", "state_dict")))


def shuffled(size: int, worker_id: int, workers: int) -> list[int]:
    """All of them, each worker in an order of its own, as from a shuffle buffer."""
    buffer = random.Random(worker_id)
    return [*buffer.sample(range(20), 20), *range(20, size)]


@pytest.mark.parametrize("share", [whole, shuffled, dealt, lambda *of: [-1, -2, *dealt(*of)]])  # with a header
def test_a_stream_that_every_worker_reads(tmp_path: Path, share: Any) -> None:
    trace, loader = recorded(tmp_path / "run", Stream(Samples(90, elsewhere), share), num_workers=3, batch_size=18)
    if share not in (whole, shuffled):
        assert loader.verdict is not Verdict.SHARES and loader.slowest[0]["keys"] is None  # a stream has none
        return
    check(loader, Said(Verdict.SHARES, "Every sample comes 3 times", (), ("should save",), "each has all of it"))
    check_numbers(trace, loader)
    found = tracing.whatif(trace)
    assert {row.setting.num_workers for row in found.rows} == {3}
    assert any("no replay knows what more workers do" in note for note in found.notes)


def in_each(worker_id: int) -> None:
    get_worker_info().dataset.rng = random.Random(worker_id)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "rng, draw, options, noted",
    [
        (np.random.default_rng(0), np.random.Generator.random, {}, True),
        (torch.Generator(), lambda rng: torch.rand((), generator=rng), {}, True),
        (random.Random(0), random.Random.random, {}, True),
        (random.Random(0), lambda rng: 0, {}, False),
        (random.Random(0), random.Random.random, {"worker_init_fn": in_each}, False),
        (random.Random(0), random.Random.seed, {}, False),  # by the sample
        (random.Random(0), lambda rng: random.random(), {"worker_init_fn": random.seed, "epochs": 2}, True),
    ],
)
def test_copies_of_a_generator_are_noted(tmp_path: Path, rng: Any, draw: Any, options: Any, noted: bool) -> None:
    dataset: Any = Samples(40)
    dataset.rng, dataset.make = rng, lambda key: (key, draw(dataset.rng, *[key] * (draw is random.Random.seed)) or 0)
    trace = loads.record(tmp_path / "run", dataset, package=TORCH, num_workers=2, batch_size=4, **options)
    assert ("draw the same random numbers" in " ".join(tracing.report(trace).notes)) is noted


# ---- the numbers

DURATION = re.compile(r"\b\d[\d.]* (?:ns|µs|ms|s|min|h)\b")
BATCH = re.compile(r"batch (\d+)\b(?![.\d]* (?:ns|µs|ms|s)\b)(?: on worker (\d+))?")
SHARE = re.compile(r"\b\d+%")


def check_numbers(trace: tracing.Trace, loader: LoaderReport) -> None:
    """They are what their events show, and nothing is counted twice: main's time is no longer than the run, a worker's
    no longer than its life."""
    (measures,) = measure(trace)
    assert sum(loader.causes_ns.values()) + loader.main_ns["training"] <= measures.total
    for reason in loader.why:
        assert all(number.ns <= measures.total * max(1, measures.num_workers) for number in reason.numbers), reason.text
        spans = [span for number in reason.numbers for span in number.longest]
        assert len(trace) > max((max(span) for span in spans), default=0), reason.text
        lengths = {id(number): lengths_of(trace, number) for number in reason.numbers}
        for shown in DURATION.findall(reason.text):
            assert shown in durations(reason, lengths), f"{shown}: {reason.text}"
        for shown in SHARE.findall(reason.text):
            assert shown in shares(lengths), f"{shown}: {reason.text}"
        for batch, worker in BATCH.findall(reason.text):
            named = [trace.events[slice(begin, end + 1)] for begin, end in spans]
            assert any(int(batch) in part["task"] for part in named), reason.text
            assert not worker or any(int(worker) in part["worker"][part["task"] == int(batch)] for part in named)


def lengths_of(trace: tracing.Trace, number: Number) -> np.ndarray:
    """How long each of its stretches is, from nothing but the two events that it names."""
    clock = "value" if number.name == "most on a core" else "time"
    values = trace.events[clock].astype(np.int64)
    lengths: np.ndarray = values[number.stretches.last] - values[number.stretches.first]
    assert len(lengths) and (lengths >= 0).all()
    assert clock == "time" or (trace.events["kind"][number.stretches.first] < 16).all()  # CPU time rides there
    assert (number.stretches.last >= number.stretches.first).all()
    return lengths


def durations(reason: Reason, lengths: dict[int, np.ndarray]) -> set[str]:
    """What it may contain: sums, means, single stretches."""
    allowed = set()
    for number in reason.numbers:
        each = lengths[id(number)]
        allowed |= {duration(each.sum()), duration(each.sum() / len(each))}
        allowed |= {duration(length) for length in np.sort(each)[-3:]}
    return allowed


def shares(lengths: dict[int, np.ndarray]) -> set[str]:
    sums = [int(each.sum()) for each in lengths.values()]
    return {f"{one / max(1, other):.0%}" for one in sums for other in sums}


# ---- where to look


def looks(text: str) -> list[list[str]]:
    """The commands behind "Look" in the text of a report, in words."""
    lines = text.replace("\\\n", " ").split("\n")
    return [shlex.split(line)[1:] for line in lines if line.startswith("Look ")]


@pytest.mark.parametrize("name", ["a few slow samples", "a slow sampler", "no workers", "many steps that take longer"])
def test_the_command_at_the_end_shows_the_evidence(name: str) -> None:
    """Its --from and --to contain the worst moment; a load without a problem has no such place."""
    dataset, options, expected = SIMULATED[name]
    trace = simulated(dataset, **options)
    found = tracing.report(trace)
    (loader,) = found.loaders
    if expected.verdict is Verdict.TRAINING:
        assert loader.look is None and not looks(str(found))
        return
    ((*_, since, _, until),) = looks(str(found))
    assert loader.look is not None
    begins, ends = ((trace.events["time"][position] - trace.start) / 1e9 for position in loader.look)
    assert 0 <= float(since) <= begins < ends <= float(until) <= float(since) + 2 * (ends - begins) + 0.01


def test_of_several_loaders_each_is_shown_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs, each with a loader to train and one to validate: the second has fewer batches."""
    with tracing.record(tmp_path / "run.trace"):
        loaders = [minidl.DataLoader(Samples(samples, napping(0.01)), 4, num_workers=1) for samples in (40, 24)]
        for _ in range(2):
            for loader in loaders:
                list(loader)
    found = tracing.report(tracing.load(tmp_path / "run.trace"))
    commands = looks(str(found))
    assert len(commands) == len(found.loaders) == 2
    monkeypatch.chdir(tmp_path)
    for words, each in zip(commands, found.loaders, strict=True):
        assert f"DataLoader {each.loader} (Samples, num_workers=1), iterated at test_verdicts.py:" in str(found)
        assert each.look is not None
        epoch = found.trace.events["epoch"][each.look[1]]
        assert words[-4:] == ["--loader", str(each.loader), "--epoch", str(epoch)]
        main(words[3:])


def test_one_bad_batch_of_many_is_where_the_report_and_the_timeline_point() -> None:
    """Whatever costs most all together: there is nothing worse to see than the one long wait."""
    trace = simulated(Makes(900, lambda index: sleep(2.0 if index == 600 else 0.0)), batch_size=1)
    (loader,), (measures,) = tracing.report(trace).loaders, measure(trace)
    (bad,) = measures.waits.longest(1).spans
    # If the long wait is more than all else together, it is the verdict's own stretch: where it held up the others.
    assert loader.look is not None and bad[0] <= loader.look[0] < loader.look[1] <= bad[1]
    view = window.View(trace)
    followed = followed_batch.choose(view, None, None)
    assert view.summed and followed is not None and followed["task"] == 600


def test_the_times_in_the_text_are_those_of_the_events() -> None:
    dataset, options, _ = SIMULATED["a few slow samples"]
    trace = simulated(dataset, **options)
    places = re.findall(r"([\d.]+)-([\d.]+) s \[events (\d+)-(\d+)\]", " ".join(str(tracing.report(trace)).split()))
    assert len(places) >= 5 and len(set(places)) == len(places)
    for since, until, first, last in places:
        begins, ends = (int(trace.events["time"][int(k)] - trace.start) / 1e9 for k in (first, last))
        assert float(since) <= begins < float(since) + 0.001 + 1e-9
        assert float(until) - 0.001 - 1e-9 < ends <= float(until)


# ---- what is not the loader's, and which loader


VALIDATES = [(2, 40, waits, 0.05), (1, 20, waits, 0.0005)]  # and waits for its worker, in few steps
BUSY = [(2, 40, lambda _: compute(0.02), 0.001)] * 2


@pytest.mark.parametrize(("loaders", "after"), [(VALIDATES, 0.0), (BUSY, 4.0)])
def test_a_small_loader_is_not_put_down_to_its_own_steps(loaders: list[Any], after: float) -> None:
    """In a program that trains for most of its time, or does something else."""

    def program() -> None:
        for workers, samples, makes, step in loaders:
            for _ in minidl.DataLoader(Makes(samples, makes), num_workers=workers):
                sleep(step)
            sleep(after)

    for each in tracing.report(tracing.load(simulate(program, cpus=2, draws=False))).loaders:
        assert each.verdict is Verdict.TRAINING and each.share > 0.75
        assert each.place != "between two batches" or each.cost_ns == each.main_ns["training"]


PROGRAM = """
import time
from torch.utils.data import get_worker_info, DataLoader
def uploads(seconds):
    time.sleep(seconds)
if __name__ == "__main__":
    uploads({before})
    for _ in range({epochs}):
        for _ in DataLoader(range(20)):
            time.sleep(0.005)
        uploads({after})
"""


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.alone), "between", "after"])
def test_a_program_that_spends_its_time_outside_of_its_loops(tmp_path: Path, when: str) -> None:
    # Looks may be a second apart, and the time before a look is known by it; a function is named that three have seen.
    before, after, epochs = {"before": (4.0, 0.0, 2), "between": (0.0, 1.0, 2), "after": (0.0, 3.0, 1)}[when]
    (tmp_path / "train.py").write_text(PROGRAM.format(before=before, after=after, epochs=epochs))
    forked(tmp_path, "-m", "tracing", "run", "-o", "trace", "train.py")
    (loader,) = tracing.report(tracing.load(tmp_path / "trace")).loaders
    more = ("Look at train.py:5, uploads",) if when == "before" else ()
    check(loader, Said(Verdict.TRAINING, "outside of its loops", more))
    assert re.match(r"It is not the loader( \(at train.py:5, uploads\))?: ", loader.verdict_line), vars(loader)


@pytest.mark.alone
def test_a_call_that_keeps_pythons_lock_is_seen(tmp_path: Path) -> None:
    """Whoever waits for the lock has it only once the call is over."""
    numbers = [random.random() for _ in range(1 << 20)]
    with tracing.record(tmp_path / "run"):
        for _ in TORCH.DataLoader(Samples(20)):
            sorted(numbers)
            time.sleep(0.005)
    (loader,) = tracing.report(tracing.load(tmp_path / "run")).loaders
    check(loader, Said(Verdict.TRAINING, "Look at test_verdicts.py:", ("sorted(numbers)",)))


def test_where_the_step_is_the_limit_main_is_looked_at_in_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = simulated(Makes(40, is_quick), step=0.05)
    (measures,) = measure(trace)
    at = {"step": measures.steps.begin + 1, "prepare": trace.start - np.arange(90)}
    looks = [(int(time), Line("train.py", 3, name, "")) for name, times in at.items() for time in times]
    stacks = [Stack(time, measures.main_pid, {"MainThread": [line]}, {"MainThread": 0}) for time, line in sorted(looks)]
    monkeypatch.setattr(tracing.Trace, "stacks", stacks)
    (loader,) = tracing.report(trace).loaders
    check(loader, Said(Verdict.TRAINING, "Look at train.py:3, step: ", ("in 40 of 40 looks",), ("prepare",)))


def test_a_thread_that_hands_batches_on_is_beside_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    (measures,) = measure(simulated(Makes(9, is_quick)))
    lines = {name: [Line("train.py", 3, name, "")] for name in (MAIN, "stager")}
    looks = [Stack(10 * n, measures.main_pid, lines, {MAIN: 4 * n, "stager": 6 * n}) for n in range(4)]
    monkeypatch.setattr(tracing.Trace, "stacks", looks)
    assert culprits.beside(measures) == (0.6, "train.py:3, stager")
    measures.main_threads = {"stager"}
    assert culprits.beside(measures) == (0.6, "train.py:3, stager")
    monkeypatch.setattr(culprits, "BESIDE", 2.0)  # the main thread hardly computes: it only waits for the other
    assert culprits.beside(measures) == (0.4, f"train.py:3, {MAIN}")


def test_a_thread_is_seen_in_the_innermost_function_that_most_looks_share() -> None:
    """Of no function that `keeps` calls there is enough; a comprehension is part of the function around it."""

    def look(*functions: str) -> Stack:
        lines = [Line("train.py", len(each), each, "") for each in functions]
        return Stack(0, 1, {"MainThread": [*lines, Line("train.py", 9, "main", "")]})

    in_keeps = [look("saves", "keeps"), look("uploads", "keeps.<locals>.<listcomp>", "keeps"), look("keeps")]
    found = culprits.seen_at([*in_keeps, look()])
    assert found is not None and (found.line.function, found.times, found.looks) == ("keeps", 3, 4)
    assert culprits.seen_at(in_keeps[:2]) is None
    assert str(culprits.seen_at([look("saves", "keeps")] * 4)).startswith("train.py:5, saves")
    opens = [Line("/lib/python3.11/zipfile.py", 1, "ZipFile.__init__", ""), Line("train.py", 5, "reads", "")]
    assert str(culprits.seen_at([Stack(0, 1, {"MainThread": opens})] * 3)) == "train.py:5, reads, in ZipFile.__init__"


def test_whatif_is_about_the_loader_that_the_report_puts_first() -> None:
    """Not about the one whose loop takes longest."""

    def program() -> None:
        for _ in minidl.DataLoader(Makes(60, is_quick), num_workers=1):
            sleep(0.02)
        list(minidl.DataLoader(Makes(30, waits), num_workers=1))

    trace = tracing.load(simulate(program, cpus=2, draws=False))
    first = tracing.report(trace).loaders[0]
    assert first.config["dataset_size"] == 30 and tracing.whatif(trace, 1, 1).loader == first.loader


def test_a_loader_in_which_the_run_ended_comes_first() -> None:
    """Even if another cost more; not one that failed before, and was left."""
    fails = functools.partial(fail, KeyError(2))

    def program() -> None:
        for number, (samples, failing) in enumerate(((4, True), (40, False), (5, True)), 1):
            with contextlib.suppress(KeyError):
                data = Samples(samples, waits, at={2: fails} if failing else {})
                list(minidl.DataLoader(data, number, num_workers=1, collate_fn=len))

    found = tracing.report(tracing.load(simulate(program, cpus=2, draws=False))).loaders
    assert [each.config["dataset_size"] for each in found] == [5, 40, 4]
    assert found[0].verdict_line == "The run ended early: see the note."


def test_loaders_built_anew_at_one_line_are_one_row(tmp_path: Path) -> None:
    """Also if the dataset has grown meanwhile."""
    with tracing.record(tmp_path / "run"):
        for number in range(12):
            for _ in TORCH.DataLoader(Samples(33 + number // 2), batch_size=8, num_workers=2):
                pass
        both = [TORCH.DataLoader(Samples(8), num_workers=1, persistent_workers=True) for _ in range(2)]
        for _ in range(2):
            for loader in both:  # in turn: these stay two
                list(loader)
        list(zip(*(TORCH.DataLoader(Samples(8)) for _ in range(2)), strict=True))  # and so do these
    found, *in_turn = tracing.report(tracing.load(tmp_path / "run")).loaders
    assert (found.built, found.epochs, found.batches, [each.built for each in in_turn]) == (12, 12, 60, [1] * 4)
    line = found.config["iterated_at"]
    assert line.startswith("test_verdicts.py:")
    check(found, Said(Verdict.STARTUP, "num_workers=0", (f"The loader at {line} was built 12 times",)))


# ---- the table, and what is promised


def test_the_page_has_the_table_of_verdicts() -> None:
    page = (Path(__file__).parents[3] / "docs" / "views.md").read_text()
    assert VERDICTS.keys() == set(Verdict) and len(VERDICTS) <= 12
    for verdict in Verdict:
        (rule,) = re.findall(f"^{verdict.name}: (.+)$", TABLE, re.MULTILINE)
        assert f"| {verdict.value} | {rule} |" in page and VERDICTS[verdict]


def test_advice_names_only_facts_that_there_are() -> None:
    (measures,) = measure(simulated(Makes(4, waits)))
    known = facts(measures, Judgement(measures))
    for entry in VERDICTS.values():
        for condition, sentence in entry:
            names = [] if condition in ("-", "OPTIONS") else condition.replace("not ", "").split(" & ")
            assert known.keys() >= set(names) and "{" not in sentence.format(**known)


def test_advice_that_only_some_traces_ask_for(tmp_path: Path) -> None:
    """Whatever the verdict: that a batch is large, or of rows, or that an epoch was left early."""
    with tracing.record(tmp_path / "run"):
        for _ in range(2):
            list(zip(range(2), TORCH.DataLoader(Samples(16, torch.zeros(1 << 20).add), 4, num_workers=1), strict=False))
    (measures,) = measure(tracing.load(tmp_path / "run"))
    known = facts(measures, Judgement(measures))
    said = " ".join(advice(Verdict.MOVING, known | {"rows": 64}, []))
    assert "A batch has 16.8 MB" in said and "The 64 samples of a batch are made one by one" in said
    assert advice(Verdict.STARTUP, known, [])[0].startswith("2 of 2 epochs were left before their end: what was drawn")


def test_an_option_is_promised_no_more_than_what_it_can_cure_costs() -> None:
    """Main draws keys slowly: more made ahead does not help, however a replay comes out."""
    (measures,) = measure(simulated(Makes(60, waits), sampler=Keys(60), prefetch_factor=1))
    judgement = Judgement(measures)
    for change in promises.changes(measures, judgement):
        if change.saves_ns is not None and "num_workers" not in change.options:
            causes = {cause for name in change.options for cause in promises.CURES[name]}
            assert change.saves_ns <= sum(judgement.costs.get(each, 0) for each in causes)
