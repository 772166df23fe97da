"""What programs from outside showed: each of them was reported wrongly once. Their loaders are torch's own."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import tracing
from tests.tracing import report_loads as loads
from tests.tracing.attached import ATTACHED
from tracing.analysis.measure.measures import measure
from tracing.analysis.measure.waited import Verdict, judge
from tracing.analysis.report.report import LoaderReport
from tracing.analysis.report.verdicts import VERDICTS, facts
from tracing.analysis.whatif import promises

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


def judged(path: Path, dataset: Any, **options: Any) -> LoaderReport:
    found = tracing.report(loads.record(path, dataset, package=ATTACHED, **options))
    assert isinstance(found, tracing.Report)
    (loader,) = found.loaders
    return loader


def said(loader: LoaderReport) -> str:
    return " ".join([*(reason.text for reason in loader.why), *loader.next])


# ---- streams


class Stream(torch.utils.data.IterableDataset[int]):
    """`shared`: every worker reads all of it."""

    def __init__(self, shared: bool) -> None:
        self.shared = shared

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        every = (0, 1) if info is None or self.shared else (info.id, info.num_workers)
        for sample in itertools.islice(range(90), every[0], None, every[1]):
            time.sleep(0.005)
            yield sample


@pytest.mark.parametrize("shared", [True, False])
def test_a_stream_that_every_worker_reads_is_the_verdict_and_a_broken_law(tmp_path: Path, shared: bool) -> None:
    loader = judged(tmp_path / "run", Stream(shared), num_workers=3, batch_size=4)
    broken = [each for each in tracing.check(tracing.load(tmp_path / "run")) if each.name == "a divided stream"]
    assert (loader.verdict is Verdict.SHARES, len(broken)) == (shared, shared), loader
    if shared:
        assert loader.named == "each has all of it" and "Every sample comes 3 times" in loader.next[0]
        assert not loader.promises and len(broken[0].events) == 3
        found = tracing.whatif(tracing.load(tmp_path / "run"))
        assert {row.setting.num_workers for row in found.rows} == {3}


# ---- what batches are made of


def text(index: int) -> str:
    return "words " * 20_000


@pytest.mark.parametrize(("make", "tensors"), [(text, False), (loads.many_leaves, True)])
def test_tensors_are_named_only_where_there_are_some(tmp_path: Path, make: Any, tensors: bool) -> None:
    options: dict[str, Any] = {} if tensors else {"collate_fn": list}
    loader = judged(tmp_path / "run", loads.Samples(60, make), num_workers=1, batch_size=4, **options)
    words = said(loader)
    assert ("tensor" in words) == tensors and (tensors or "shared-memory file" not in words), words
    assert ("Fewer tensors in a batch (now 200" in words) == tensors


# ---- which loader, which line


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
    assert found.verdict is Verdict.STARTUP and "12 of 12 epochs were left before their end" in said(found), found


def opens(index: int) -> int:
    time.sleep(0.02)  # opens an archive
    return index


@pytest.mark.parametrize("workers", [0, 2])
def test_the_line_that_takes_most_is_named(tmp_path: Path, workers: int) -> None:
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# opens an archive" in text)
    loader = judged(tmp_path / "run", loads.Samples(160 * max(1, workers), opens), num_workers=workers, batch_size=2)
    assert f"Look at test_findings.py:{line}, opens." in said(loader), loader


BLOCK = bytes(10_000_000)


def hashes(index: int) -> int:
    """As a library does that computes with several threads."""
    threads = [threading.Thread(target=hashlib.sha256, args=(BLOCK,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return index


@pytest.mark.alone  # threads show only if they have cores
def test_threads_of_a_library_in_the_workers_are_named(tmp_path: Path) -> None:
    loader = judged(tmp_path / "run", loads.Samples(120, hashes), num_workers=2, batch_size=2)
    assert loader.verdict is Verdict.WORKERS and "Limit a library's threads in them" in said(loader), loader
    assert not any(each.options.get("num_workers", 0) > 2 for each in loader.promises)


# ---- what nobody should be advised


def test_the_first_batch_is_not_blamed_if_it_takes_no_longer_than_others(tmp_path: Path) -> None:
    loader = judged(tmp_path / "run", loads.Samples(2, loads.waits_long), num_workers=2, epochs=6)
    assert "The first batch takes longest" not in said(loader)


class AtOnce(torch.utils.data.Sampler[int]):
    """Draws all keys of an epoch before it gives the first."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(0.5)
        return iter(range(30))

    def __len__(self) -> int:
        return 30


def test_a_sampler_that_draws_all_keys_at_once_is_not_told_to(tmp_path: Path) -> None:
    loader = judged(tmp_path / "run", loads.Samples(30, loads.quick), sampler=AtOnce(), num_workers=1)
    assert loader.verdict is Verdict.SAMPLER and "The sampler takes its time before it gives the first keys" in said(
        loader
    )
    assert "Draw the keys of the whole epoch at once" not in said(loader)


class Pool(loads.Samples):
    """Computes its samples in processes of its own, which a worker could not start."""

    pool: ProcessPoolExecutor | None = None

    def __getitem__(self, index: int) -> int:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
        return self.pool.submit(loads.waits, index).result()


def test_workers_are_not_promised_to_a_dataset_that_has_processes(tmp_path: Path) -> None:
    dataset = Pool(40, loads.waits)
    loader = judged(tmp_path / "run", dataset, num_workers=0)
    if dataset.pool is not None:
        dataset.pool.shutdown()
    assert loader.verdict is Verdict.NO_WORKERS and not loader.promises, loader
    assert "they may have no children" in said(loader)


class Limited(loads.Samples):
    """A rate limit, at which no worker holds a lock while it waits."""

    def __init__(self, n: int) -> None:
        super().__init__(n, loads.quick)
        self.free = multiprocessing.get_context("fork").Value("d", 0.0)

    def __getitem__(self, index: int) -> int:
        with self.free.get_lock():
            at = max(time.monotonic(), self.free.value)
            self.free.value = at + 0.01
        time.sleep(max(0.0, at + 0.01 - time.monotonic()))
        return index


@pytest.mark.alone  # what serves one at a time shows by the distances of samples
def test_a_rate_limit_promises_nothing_from_more_workers(tmp_path: Path) -> None:
    loader = judged(tmp_path / "run", Limited(240), num_workers=4, batch_size=4)
    assert loader.verdict is Verdict.TURNS, loader
    assert not any("num_workers" in each.options for each in loader.promises)
    found = tracing.whatif(tracing.load(tmp_path / "run"))
    assert max(row.setting.num_workers for row in found.rows) == 4
    assert any("no replay knows what more workers would do" in note for note in found.notes)


class SlowState(loads.Samples):
    """It takes long to save its state, which a worker does after each batch."""

    def state_dict(self) -> dict[str, int]:
        time.sleep(0.03)
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Nothing is restored."""


def test_a_state_that_takes_long_to_save_is_no_moving(tmp_path: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    with tracing.record(tmp_path / "run"):
        list(tracing.attach(stateful.StatefulDataLoader(SlowState(60, loads.quick), num_workers=1)))
    (loader,) = tracing.report(tracing.load(tmp_path / "run")).loaders
    assert loader.verdict is Verdict.WORKERS and "state_dict" in said(loader), loader


# ---- the table


def test_the_page_has_the_table_of_verdicts() -> None:
    page = (Path(__file__).parents[3] / "docs" / "views.md").read_text()
    assert VERDICTS.keys() == set(Verdict) and len(VERDICTS) <= 12
    for verdict, entry in VERDICTS.items():
        assert f"| {verdict.value} | {entry.rule} |" in page and entry.advice


@pytest.mark.parametrize("verdict", Verdict)
def test_advice_names_only_facts_that_there_are(tmp_path: Path, verdict: Verdict) -> None:
    (measures,) = measure(loads.record(tmp_path / "run", loads.Samples(4, loads.quick), num_workers=1))
    known = facts(measures, 1_000_000)
    for condition, text in VERDICTS[verdict].advice:
        names = condition.replace("not ", "").split(" & ") if condition != "-" else []
        assert known.keys() >= set(names) and "{" not in text.format(**known)


# ---- stragglers


def one_in_97_is_slow(index: int) -> int:
    time.sleep(0.25 if index % 97 == 3 else 0.004)
    return index


@pytest.mark.alone  # sixteen workers wait for two cores long before a machine looks busy
def test_independent_stragglers_hold_up_the_others_and_wait_for_no_lock(tmp_path: Path) -> None:
    loader = judged(tmp_path / "run", loads.Samples(1600, one_in_97_is_slow), num_workers=16, batch_size=4)
    assert loader.verdict is Verdict.HOLD_UP, loader
    assert any("in_order=False" in advice for advice in loader.next) and "lock" not in said(loader)


def test_an_option_is_promised_no_more_than_what_it_can_cure_costs(tmp_path: Path) -> None:
    """Main draws keys slowly: more made ahead does not help, however a replay comes out."""
    options = {"sampler": loads.SlowSampler(60), "num_workers": 2, "prefetch_factor": 1}
    trace = loads.record(tmp_path / "run", loads.Samples(60, loads.waits), package=ATTACHED, **options)
    (measures,) = measure(trace)
    judgement = judge(measures)
    for change in promises.changes(measures, judgement):
        if change.promise is not None and "num_workers" not in change.options:
            causes = {cause for name in change.options for cause in promises.CURES[name]}
            assert change.promise.saves_ns <= sum(judgement.costs.get(each, 0) for each in causes)
    assert "prefetch_factor" not in " ".join(tracing.report(trace).loaders[0].next)
