"""Who or what is behind the waiting, and what programs from outside showed, each of which was reported wrongly once:
real loads, most of them torch's, of which the report says what is so, and nothing that is not. The contrasts are large:
no busy machine makes one of them, or hides it."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import minidl
import tracing
from minidl.world.simulated import simulate, sleep
from minidl.world.simulated.machine import current_machine
from tests.tracing import report_loads as loads
from tests.tracing.attached import ATTACHED
from tests.tracing.forked import forked
from tracing.analysis.measure.measures import measure
from tracing.analysis.measure.waited import Verdict, judge
from tracing.analysis.report.report import LoaderReport
from tracing.analysis.report.verdicts import VERDICTS, facts
from tracing.analysis.whatif import promises

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


def reported(path: Path, dataset: Any, package: Any = ATTACHED, **options: Any) -> LoaderReport:
    (loader,) = tracing.report(loads.record(path, dataset, package=package, **options)).loaders
    return loader


def said(loader: LoaderReport) -> str:
    return " ".join([*(reason.text for reason in loader.why), *loader.next])


# ---- datasets


class OneIsSlow(loads.Samples):
    """Worker 1 has its files somewhere else."""

    def __getitem__(self, index: int) -> int:
        info = minidl.get_worker_info() or torch.utils.data.get_worker_info()
        time.sleep(0.06 if info is not None and info.id == 1 else 0.005)
        return index


class Locked(loads.Samples):
    """One worker at a time."""

    def __init__(self, n: int, whole_batch: bool) -> None:
        super().__init__(n, loads.quick)
        self.lock, self.whole_batch = multiprocessing.get_context("fork").Lock(), whole_batch

    def __getitems__(self, keys: list[int]) -> list[int]:
        if self.whole_batch:
            with self.lock:
                time.sleep(0.05)
            return keys
        return [self[key] for key in keys]

    def __getitem__(self, index: int) -> int:
        with self.lock:
            time.sleep(0.015)
        return index


class Shards(minidl.IterableDataset):
    """Worker 0 has nearly all of the samples."""

    def __iter__(self) -> Iterator[int]:
        info = minidl.get_worker_info()
        for sample in range(60 if info is None or info.id == 0 else 4):
            time.sleep(0.02)
            yield sample


class Stream(torch.utils.data.IterableDataset[torch.Tensor]):
    """`shared`: every worker reads all of it. A tensor lies at another address in each worker."""

    def __init__(self, shared: bool) -> None:
        self.shared = shared

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = torch.utils.data.get_worker_info()
        elsewhere = [torch.zeros(100) for _ in range(0 if info is None else info.id)]
        every = (0, 1) if info is None or self.shared else (info.id, info.num_workers)
        for sample in itertools.islice(range(90), every[0], None, every[1]):
            time.sleep(0.005)
            elsewhere.append(torch.full((8,), sample))
            yield elsewhere[-1]


class Pool(loads.Samples):
    """Computes its samples in processes of its own, which a worker could not start."""

    pool: ProcessPoolExecutor | None = None

    def __getitem__(self, index: int) -> int:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
        return self.pool.submit(loads.waits, index).result()


class SlowState(loads.Samples):
    """It takes long to save its state, which a worker does after each batch."""

    def state_dict(self) -> dict[str, int]:
        time.sleep(0.03)
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Nothing is restored."""


class CopiedGenerator(loads.Samples):
    """Each worker has a copy of the generator."""

    def __init__(self, n: int, constant: bool = False) -> None:
        super().__init__(n, loads.quick)
        self.generator, self.constant = random.Random(0), constant

    def __getitem__(self, index: int) -> float:
        return 0.0 if self.constant else self.generator.random()


def pads(samples: list[int]) -> list[int]:
    """A collate_fn."""
    time.sleep(0.03)
    return samples


def opens(index: int) -> int:
    threading.Event().wait(0.02)  # opens an archive
    return index


BLOCK = bytes(10_000_000)


def hashes(index: int) -> int:
    """As a library does that computes with several threads."""
    threads = [threading.Thread(target=hashlib.sha256, args=(BLOCK,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return index


def one_in_97_is_slow(index: int) -> int:
    time.sleep(0.25 if index % 97 == 3 else 0.004)
    return index


# ---- what is said of them


@dataclass
class Finding:
    """A load, and what its report says."""

    dataset: Any
    options: dict[str, Any]  # of the loader
    verdict: Verdict | None
    named: str = ""  # how the name of what it is about begins
    said: tuple[str, ...] = ()  # in Why or Next
    unsaid: tuple[str, ...] = ()
    unpromised: Callable[[dict[str, Any]], bool] = lambda options: False  # options of which no promise is made


def changes_workers(options: dict[str, Any]) -> bool:
    return "num_workers" in options


def anything(options: dict[str, Any]) -> bool:
    return True


KEYS_COME_SLOWLY = {"num_workers": 2, "sampler": loads.SlowSampler(30), "collate_fn": list, "step": 0.1}
STARTS = {"num_workers": 2, "worker_init_fn": loads.imports_first, "collate_fn": list, "step": 0.08}
TAKES_TURNS = {"num_workers": 4, "batch_size": 4, "epochs": 6, "persistent_workers": True}
WAITS_FOR_LOCK = Verdict.TURNS, "", ("more workers do not help", "waited for a lock"), (), changes_workers
COLLATES = "collate_fn pads (test_findings.py:"
LINE = f"Look at test_findings.py:{opens.__code__.co_firstlineno + 1}, opens, in Event.wait."
FINDINGS = {
    "one worker is slow": Finding(
        OneIsSlow(60, loads.quick), {"num_workers": 3, "batch_size": 2},
        Verdict.HOLD_UP, "worker 1, pid ", ("worker 1 takes", "in_order=False"),
    ),
    "a lock for a batch": Finding(Locked(48, True), TAKES_TURNS, *WAITS_FOR_LOCK),
    "a lock for a sample": Finding(Locked(48, False), TAKES_TURNS, *WAITS_FOR_LOCK),
    "a slow collate_fn": Finding(
        loads.Samples(80, loads.quick), {"num_workers": 1, "batch_size": 4, "collate_fn": pads},
        Verdict.WORKERS, COLLATES,
    ),
    "a slow collate_fn in main": Finding(
        loads.Samples(80, loads.quick), {"batch_size": 4, "collate_fn": pads}, Verdict.NO_WORKERS, COLLATES,
    ),
    "200 tensors": Finding(
        loads.Samples(60, loads.many_leaves), {"num_workers": 1, "batch_size": 4},
        None, said=("Fewer tensors in a batch (now 200",),
    ),
    "an archive": Finding(
        loads.Samples(320, opens), {"num_workers": 2, "batch_size": 2}, Verdict.WORKERS, said=(LINE,),
    ),
    "an archive in main": Finding(
        loads.Samples(160, opens), {"batch_size": 2}, Verdict.NO_WORKERS, said=(LINE,),
    ),
    "threads of a library": Finding(
        loads.Samples(120, hashes), {"num_workers": 2, "batch_size": 2},
        Verdict.WORKERS, said=("Limit a library's threads in them",),
        unpromised=lambda options: options.get("num_workers", 0) > 2,
    ),
    "a first batch like any other": Finding(
        loads.Samples(2, loads.waits_long), {"num_workers": 2, "epochs": 6},
        None, unsaid=("The first batch takes longest",),
    ),
    "processes of its own": Finding(
        Pool(40, loads.waits), {}, Verdict.NO_WORKERS, said=("they may have no children",), unpromised=anything,
    ),
    "mostly training": Finding(  # it draws its keys slowly
        loads.Samples(30, loads.quick), KEYS_COME_SLOWLY,
        Verdict.TRAINING, said=("make the training step faster", "Also, drawing keys"),
    ),
    "a long start-up": Finding(  # of one epoch there is nothing to save
        loads.Samples(30, loads.quick), STARTS, Verdict.TRAINING, unsaid=("persistent_workers",),
    ),
    "two long start-ups": Finding(
        loads.Samples(30, loads.quick), {**STARTS, "epochs": 2},
        Verdict.TRAINING, said=("persistent_workers=True starts the workers once, not in each of 2 epochs",),
    ),
    "independent stragglers": Finding(
        loads.Samples(1600, one_in_97_is_slow), {"num_workers": 16, "batch_size": 4},
        Verdict.HOLD_UP, said=("in_order=False",), unsaid=("lock",),
    ),
}  # fmt: skip
SLOW = ("a lock for a batch", "a lock for a sample", "mostly training", "a long start-up", "two long start-ups")
# Threads show only if they have cores; sixteen workers wait for two cores long before a machine looks busy.
ALONE = ("threads of a library", "independent stragglers")
EACH = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW) + [pytest.mark.alone] * (name in ALONE))
    for name in FINDINGS
]


def check(loader: LoaderReport, finding: Finding) -> None:
    assert finding.verdict in (loader.verdict, None) and loader.named.startswith(finding.named), loader
    assert f"({loader.named})" in loader.verdict_line or not loader.named
    assert all(words in said(loader) for words in finding.said), said(loader)
    assert not any(words in said(loader) for words in finding.unsaid), said(loader)
    assert finding.verdict is Verdict.TURNS or "turns" not in loader.causes_ns, loader
    assert not any(finding.unpromised(promise.options) for promise in loader.promises), loader


@pytest.mark.parametrize("name", EACH)
def test_what_is_found(tmp_path: Path, name: str) -> None:
    finding = FINDINGS[name]
    loader = reported(tmp_path / "run", finding.dataset, **finding.options)
    if isinstance(finding.dataset, Pool) and finding.dataset.pool is not None:
        finding.dataset.pool.shutdown()
    check(loader, finding)


@pytest.mark.parametrize("name", ["one worker is slow", "a slow collate_fn", "a slow collate_fn in main"])
def test_the_same_is_found_of_minidl(tmp_path: Path, name: str) -> None:
    finding = FINDINGS[name]
    check(reported(tmp_path / "run", finding.dataset, minidl, **finding.options), finding)


def test_unequal_shares_of_a_stream_are_named(tmp_path: Path) -> None:
    finding = Finding(Shards(), {}, Verdict.SHARES, "worker 0 has most", ("an equal share",), (), anything)
    check(reported(tmp_path / "run", finding.dataset, minidl, num_workers=6, batch_size=2), finding)


@pytest.mark.parametrize("shared", [True, False])
def test_a_stream_that_every_worker_reads_is_the_verdict_and_a_broken_law(tmp_path: Path, shared: bool) -> None:
    loader = reported(tmp_path / "run", Stream(shared), num_workers=3, batch_size=4)
    broken = [each for each in tracing.check(tracing.load(tmp_path / "run")) if each.name == "a divided stream"]
    assert (loader.verdict is Verdict.SHARES, len(broken)) == (shared, shared), loader
    if shared:
        assert loader.named == "each has all of it" and "Every sample comes 3 times" in loader.next[0]
        assert not loader.promises and len(broken[0].events) == 3
        found = tracing.whatif(tracing.load(tmp_path / "run"))
        assert {row.setting.num_workers for row in found.rows} == {3}
        assert any("no replay knows what more workers would do" in note for note in found.notes)


@pytest.mark.alone  # what a thread waits for, samples of a few milliseconds show
def test_a_thread_that_keeps_pythons_lock_is_the_cause(tmp_path: Path) -> None:
    """Main's own work is quick, but it waits for the lock at every step of it."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(20_000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        loader = reported(tmp_path / "run", loads.Samples(500, loads.quick), minidl, num_workers=2, batch_size=2)
    finally:
        over.set()
        thread.join()
    said_of_it = ("the other threads of its process used",)
    check(loader, Finding(None, {}, Verdict.MOVING, "another thread of main keeps Python's lock", said_of_it))


def test_a_state_that_takes_long_to_save_is_no_moving(tmp_path: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    with tracing.record(tmp_path / "run"):
        list(tracing.attach(stateful.StatefulDataLoader(SlowState(60, loads.quick), num_workers=1)))
    (loader,) = tracing.report(tracing.load(tmp_path / "run")).loaders
    check(loader, Finding(None, {}, Verdict.WORKERS, said=("state_dict",)))


# ---- on the simulated machine, where nothing is by chance


class Sleeps(loads.Samples):
    """Each sample comes after 10 ms."""

    def __getitem__(self, index: int) -> int:
        sleep(0.01)
        return index


class Quota(Sleeps):
    """A sample comes every 10 ms, whichever worker asks for it."""

    taken = 0.0

    def __getitem__(self, index: int) -> int:
        now = current_machine().world.now()
        Quota.taken = max(now, Quota.taken) + 0.01
        sleep(Quota.taken - now)
        return index


class Stragglers(Sleeps):
    """One in six comes late; so does the first."""

    def __getitem__(self, index: int) -> int:
        sleep(0.01 if index % 6 else 0.4)
        return index


class ShuffleBuffer(minidl.IterableDataset[int]):
    """It is filled before the first sample comes."""

    def __iter__(self) -> Iterator[int]:
        sleep(0.4)
        yield from range(20)


def simulated(dataset: Any, epochs: int = 1, leave: int = 1000, step: float = 0.001, **options: Any) -> LoaderReport:
    def program() -> None:
        Quota.taken = 0.0
        loader = minidl.DataLoader(dataset, num_workers=2, **options)
        for _ in range(epochs):
            for number, _ in enumerate(loader, 1):
                sleep(step)
                if number == leave:
                    break

    (loader,) = tracing.report(tracing.load(simulate(program, cpus=2, draws=False))).loaders
    return loader


SIMULATED = {
    "a quota for all workers": (
        Quota(36, loads.quick), {"batch_size": 4, "epochs": 3, "persistent_workers": True},
        Finding(None, {}, Verdict.TURNS, said=("serves one after the other",), unpromised=changes_workers),
    ),
    "waits for nothing that is shared": (
        Sleeps(36, loads.quick), {"batch_size": 4, "epochs": 3, "persistent_workers": True},
        Finding(None, {}, Verdict.WORKERS, said=("each for itself: more workers help",)),
    ),
    "waits for something unknown": (  # both workers are always at work
        Sleeps(80, loads.quick), {"batch_size": 4},
        Finding(
            None, {}, Verdict.WORKERS, said=("num_workers=4 instead of 2 helps only if",),
            unpromised=changes_workers,
        ),
    ),
    "the first of many stragglers": (
        Stragglers(48, loads.quick), {}, Finding(None, {}, Verdict.HOLD_UP, said=("in_order=False",)),
    ),
    "epochs that are left early": (
        Sleeps(800, loads.quick), {"batch_size": 40, "epochs": 3, "leave": 2},
        Finding(
            None, {}, Verdict.SHUTDOWN, said=("3 of 3 epochs were left before their end",), unsaid=("at exit",),
            unpromised=lambda options: "persistent_workers" in options,
        ),
    ),
    "hardly anything in the loader": (  # the loop sleeps
        Sleeps(40, loads.quick), {"batch_size": 2, "step": 0.05},
        Finding(None, {}, Verdict.TRAINING, unpromised=changes_workers),
    ),
    "a worker_init_fn": (  # main does not call it
        loads.Samples(6, loads.quick), {"epochs": 4, "worker_init_fn": lambda worker_id: sleep(0.3)},
        Finding(
            None, {}, Verdict.STARTUP, said=("persistent_workers=True",),
            unpromised=lambda options: options.get("num_workers") == 0,
        ),
    ),
    "a shuffle buffer": (
        ShuffleBuffer(), {"batch_size": 2, "epochs": 2},
        Finding(
            None, {}, Verdict.STARTUP, said=("in the dataset's own __iter__",),
            unpromised=lambda options: "persistent_workers" in options,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIMULATED)
def test_what_is_found_without_noise(name: str) -> None:
    dataset, options, finding = SIMULATED[name]
    loader = simulated(dataset, **options)
    check(loader, finding)
    assert (name in ("waits for nothing that is shared", "the first of many stragglers")) is any(
        "num_workers" in each.options for each in loader.promises
    )


def test_a_small_loader_is_not_put_down_to_its_own_steps() -> None:
    """A validation that waits for its worker, in a program that trains for most of its time."""

    def program() -> None:
        for workers, samples, step in ((2, 40, 0.05), (1, 20, 0.0005)):
            for _ in minidl.DataLoader(Sleeps(samples, loads.quick), num_workers=workers):
                sleep(step)

    for each in tracing.report(tracing.load(simulate(program, cpus=2, draws=False))).loaders:
        assert each.verdict is Verdict.TRAINING and each.share > 0.75


# ---- what is wrong, and what is not the loader's


@pytest.mark.parametrize("constant", [False, True])
def test_workers_that_make_the_same_of_other_keys_are_noted(tmp_path: Path, constant: bool) -> None:
    trace = loads.record(tmp_path / "run", CopiedGenerator(40, constant), package=ATTACHED, num_workers=2, batch_size=4)
    found = tracing.report(trace)
    notes = " ".join(found.notes)
    assert found.loaders[0].verdict is not Verdict.SHARES
    assert ("The first samples of all 2 workers are the same, though their keys differ" in notes) is not constant


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.alone), "between"])
def test_a_program_that_spends_its_time_outside_of_its_loops(tmp_path: Path, when: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(OUTSIDE.format(before=2.0 * (when == "before"), between=1.0 * (when == "between")))
    forked(tmp_path, "-m", "tracing", "run", "-o", "trace", "train.py")
    (loader,) = tracing.report(tracing.load(tmp_path / "trace")).loaders
    line = ("Look at train.py:5, uploads",) if when == "before" else ()  # else it is too short to be seen
    check(loader, Finding(None, {}, Verdict.TRAINING, said=("outside of its loops", *line)))
    assert loader.verdict_line.startswith("It is not the loader: "), loader


OUTSIDE = """
import time
from torch.utils.data import DataLoader
def uploads(seconds):
    time.sleep(seconds)
if __name__ == "__main__":
    uploads({before})
    for _ in range(2):
        for _ in DataLoader(range(20)):
            time.sleep(0.005)
        uploads({between})
"""


# ---- which loader


def test_whatif_is_about_the_loader_that_the_report_puts_first(tmp_path: Path) -> None:
    """Not about the one whose loop takes longest."""
    with tracing.record(tmp_path / "run"):
        for _ in ATTACHED.DataLoader(loads.Samples(60, loads.quick), num_workers=1):
            time.sleep(0.02)
        list(ATTACHED.DataLoader(loads.Samples(30, loads.waits), num_workers=1))
    trace = tracing.load(tmp_path / "run")
    first = tracing.report(trace).loaders[0]
    assert first.config["dataset_size"] == 30 and tracing.whatif(trace, 1, 1).loader == first.loader


def test_loaders_built_anew_at_one_line_are_one_row(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        for _ in range(12):
            for _ in ATTACHED.DataLoader(loads.Samples(40, loads.quick), batch_size=8, num_workers=2):
                pass
    (loader,) = tracing.report(tracing.load(tmp_path / "run")).loaders
    assert (loader.verdict, loader.built, loader.epochs, loader.batches) == (Verdict.STARTUP, 12, 12, 60), loader
    assert loader.config["iterated_at"].startswith("test_findings.py:")
    assert f"The loader that is iterated at {loader.config['iterated_at']} was built 12 times" in said(loader)
    assert any(advice.startswith("num_workers=0 instead of 2") for advice in loader.next)


def test_loaders_that_are_iterated_in_turn_stay_two(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        both = [ATTACHED.DataLoader(loads.Samples(8, loads.quick)) for _ in range(2)]
        for _ in range(2):
            for loader in both:
                list(loader)
    assert [each.built for each in tracing.report(tracing.load(tmp_path / "run")).loaders] == [1, 1]


def test_an_iterator_should_be_kept(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        loader = ATTACHED.DataLoader(loads.Samples(400, loads.quick), batch_size=8, num_workers=2)
        for _ in range(12):
            next(iter(loader))
    (found,) = tracing.report(tracing.load(tmp_path / "run")).loaders
    assert found.verdict is Verdict.STARTUP and "12 of 12 epochs were left before their end" in found.next[0], found
    assert "shutdown" not in found.causes_ns  # of each iterator, that is part of the same


# ---- the table, and what is promised


def test_the_page_has_the_table_of_verdicts() -> None:
    page = (Path(__file__).parents[3] / "docs" / "views.md").read_text()
    assert VERDICTS.keys() == set(Verdict) and len(VERDICTS) <= 12
    for verdict, entry in VERDICTS.items():
        assert f"| {verdict.value} | {entry.rule} |" in page and entry.advice


def test_advice_names_only_facts_that_there_are(tmp_path: Path) -> None:
    (measures,) = measure(loads.record(tmp_path / "run", loads.Samples(4, loads.quick), num_workers=1))
    known = facts(measures, judge(measures))
    for entry in VERDICTS.values():
        for condition, sentence in entry.advice:
            names = condition.replace("not ", "").split(" & ") if condition != "-" else []
            assert known.keys() >= set(names) and "{" not in sentence.format(**known)


def test_an_option_is_promised_no_more_than_what_it_can_cure_costs(tmp_path: Path) -> None:
    """Main draws keys slowly: more made ahead does not help, however a replay comes out."""
    options = {"sampler": loads.SlowSampler(60), "num_workers": 2, "prefetch_factor": 1}
    trace = loads.record(tmp_path / "run", loads.Samples(60, loads.waits), package=ATTACHED, **options)
    (measures,) = measure(trace)
    judgement = judge(measures)
    for change in promises.changes(measures, judgement):
        if change.saves_ns is not None and "num_workers" not in change.options:
            causes = {cause for name in change.options for cause in promises.CURES[name]}
            assert change.saves_ns <= sum(judgement.costs.get(each, 0) for each in causes)
    assert "prefetch_factor" not in " ".join(tracing.report(trace).loaders[0].next)
