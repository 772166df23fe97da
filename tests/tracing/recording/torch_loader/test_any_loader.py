"""Every loader is recorded that makes torch's iterators, or iterators like them, in any library; any other is named.

Each class here does what one library or many a user does, and nothing else."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.data.dataloader import (  # before anything is attached: as a program's modules may
    _BaseDataLoaderIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

import tracing
from minidl.events import Kind
from tests.tracing.forked import forked
from tests.tracing.loads import Numbers
from tracing.__main__ import main
from tracing.recording.torch_loader.attach import attach, everything
from tracing.trace.lacks import unseen_loaders

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[4]


class Doubling(_MultiProcessingDataLoaderIter):
    """Changes each batch, and keeps its loader."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self.loader = loader

    def _next_data(self) -> Any:
        assert isinstance(self.loader, DoublingLoader) and len(self.loader) == 3
        self.loader.steps += 1
        return super()._next_data() * 2


class DoublingLoader(DataLoader[Any]):
    steps = 0

    def _get_iterator(self) -> Any:
        return Doubling(self) if self.num_workers else super()._get_iterator()


class Forked(_BaseDataLoaderIter):
    """Written after torch's, as torchdata's: it inherits only what both of torch's do."""

    def __init__(self, loader: Any, state: int) -> None:
        super().__init__(loader)
        arguments = self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        self._dataset_fetcher = _DatasetKind.create_fetcher(*arguments)  # type: ignore[attr-defined]
        for _ in range(state):
            next(self)

    def _next_data(self) -> Any:
        return self._dataset_fetcher.fetch(self._next_index())


class Stateful(DataLoader[Any]):
    state = 0

    def _get_iterator(self) -> Any:
        return Forked(self, state=self.state)


class Generating(DataLoader[Any]):
    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch.clone()


class Sharded:
    """Around another loader, whose class it takes the name of, as accelerate's."""

    def __init__(self, base: DataLoader[Any]) -> None:
        self.base = base
        self.__class__ = type(type(base).__name__, (type(self), type(base)), {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["base"], name)

    def __iter__(self) -> Any:
        yield from self.base.__iter__()


class Fake(IterableDataset[Any]):
    """No DataLoader, but torch's iterators take it for one, and for its own dataset: as fastai's."""

    _dataset_kind, _auto_collation, drop_last, in_order, timeout = _DatasetKind.Iterable, False, False, True, 0
    generator = worker_init_fn = multiprocessing_context = _IterableDataset_len_called = None
    pin_memory, pin_memory_device, persistent_workers, prefetch_factor = False, "", False, 2
    _index_sampler = range(100)

    def __init__(self, num_workers: int) -> None:
        self.num_workers, self.dataset = num_workers, self

    def collate_fn(self, batch: Any) -> Any:
        return batch

    def __iter__(self) -> Any:
        info = get_worker_info()
        return iter([Numbers(6)[k] for k in range(info.id if info else 0, 6, info.num_workers if info else 1)])


def plain(workers: int) -> DataLoader[Any]:
    return DataLoader(Numbers(6), 2, num_workers=workers)


def iterator_of(loader: Any) -> Any:
    return (_MultiProcessingDataLoaderIter if loader.num_workers else _SingleProcessDataLoaderIter)(loader)


LOADERS: dict[str, Callable[[int], Any]] = {
    "plain": plain,
    "iterator built directly": lambda workers: iterator_of(plain(workers)),
    "own iterator": lambda workers: DoublingLoader(Numbers(6), 2, num_workers=workers),
    "own __iter__": lambda workers: Generating(Numbers(6), 2, num_workers=workers),
    "around another": lambda workers: Sharded(plain(workers)),
    "no DataLoader": lambda workers: iterator_of(Fake(workers)),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", LOADERS)
def test_it_is_recorded_and_yields_what_it_yields_alone(name: str, workers: int, tmp_path: Path) -> None:
    alone = [batch.tolist() for batch in LOADERS[name](workers)]
    with tracing.record(tmp_path / "trace"):
        with everything():
            assert [batch.tolist() for batch in LOADERS[name](workers)] == alone
        list(plain(0))  # none is recorded afterwards
    trace = tracing.load(tmp_path / "trace", strict=True)
    assert len(trace.loaders) == 1 and tracing.check(trace) == []
    count = {kind.name: int((trace.events["kind"] == kind).sum()) for kind in Kind}
    assert count["YIELDED"] == count["FETCH_END"] == count["COLLATE_END"] == len(alone) >= 3
    assert count["WORKER_BEGIN"] == trace.loaders[0].num_workers == workers
    assert unseen_loaders(trace) == []


def test_batches_taken_while_it_is_made_are_of_the_epoch(tmp_path: Path) -> None:
    """As torchdata's, which draws what came before the checkpoint once more."""
    loader = attach(Stateful(Numbers(6), 2))
    loader.state = 2
    with tracing.record(tmp_path / "trace"):
        assert [batch.tolist() for batch in loader] == [[[4], [5]]]
    trace = tracing.load(tmp_path / "trace", strict=True)
    assert tracing.check(trace) == []
    kinds = [Kind(kind).name for kind in trace.events["kind"]]
    assert kinds[:4] == ["LOADER", "EPOCH_BEGIN", "ASKED", "KEYS_BEGIN"] and kinds.count("YIELDED") == 3


# ---- what cannot be recorded is named


class Threaded(DataLoader[Any]):
    def __iter__(self) -> Any:
        batches: queue.Queue[Any] = queue.Queue()
        thread = threading.Thread(target=lambda: [batches.put(self.dataset[key]) for key in range(3)])
        thread.start()
        yield from (batches.get() for _ in range(3))
        thread.join()


class Alien(_BaseDataLoaderIter):
    def _next_data(self) -> Any:
        return self._dataset[next(self._sampler_iter)[0]]


class WithAliens(DataLoader[Any]):
    def _get_iterator(self) -> Any:
        return Alien(self)


class Registered(_SingleProcessDataLoaderIter):
    """Cannot be subclassed as if nothing were."""

    def __init_subclass__(cls, name: str) -> None:
        raise AssertionError


class WithRegistered(DataLoader[Any]):
    def _get_iterator(self) -> Any:
        return Registered(self)


@pytest.mark.parametrize("loader", [Threaded, WithAliens, WithRegistered])
def test_what_was_not_seen_is_named(loader: Any, tmp_path: Path) -> None:
    alone = list(loader(Numbers(3)))
    with tracing.record(tmp_path / "trace"), everything():
        assert list(loader(Numbers(3))) == alone
        list(DataLoader(Numbers(2)))
    trace = tracing.load(tmp_path / "trace", strict=True)
    assert unseen_loaders(trace) == [loader.__name__] and len(trace.loaders) == 1
    sentence = f"{loader.__name__} has iterators of its own: workers that they started were not seen."
    assert tracing.report(trace).notes == [sentence]


def test_no_loader_is_denied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is said of a trace with nothing else in it."""
    with tracing.record(tmp_path / "trace") as recording, everything():
        list(Threaded(Numbers(3)))
    text = str(tracing.report(tracing.load(recording.path)))
    assert text.startswith("Note: Threaded has iterators of its own") and "No loader" not in text
    assert main(["check", str(recording.path)]) == 2
    assert "Threaded has iterators of its own" in capsys.readouterr().err


def test_children_name_what_was_not_seen(tmp_path: Path) -> None:
    """Of two classes that make their iterators themselves, in a child of `run`, one was recorded."""
    program = """
import multiprocessing
from tests.tracing.recording.torch_loader.test_any_loader import Generating, Numbers, Threaded

def child(classes):
    for loader in classes:
        assert len(list(loader(Numbers(3)))) == 3

if __name__ == "__main__":
    for classes in [Threaded], [Generating]:
        process = multiprocessing.get_context("fork").Process(target=child, args=(classes,))
        process.start()
        process.join()
        assert process.exitcode == 0
"""
    (tmp_path / "train.py").write_text(program)
    _, said = forked(tmp_path, "-m", "tracing", "run", "-o", "trace", "train.py")
    assert "Note: Threaded has iterators of its own" in said and "Generating has" not in said
    assert tracing.load(tmp_path / "trace").loaders[0].config["loader"] == "Generating"


# ---- the others stay as they were


def test_only_the_attached_loader_emits(tmp_path: Path) -> None:
    own, other = attach(DoublingLoader(Numbers(6), 2, num_workers=1)), DoublingLoader(Numbers(6), 2, num_workers=1)
    with tracing.record(tmp_path / "trace"):
        iterator = iter(other)
        assert type(iterator) is Doubling
        assert len(list(own)) == len(list(iterator)) == 3 == own.steps - 1 == other.steps - 1
    assert len(tracing.load(tmp_path / "trace").loaders) == 1


def test_a_loader_may_be_made_in_any_way_after_torch_was_hooked() -> None:
    class Named:
        def __new__(cls, *args: Any, **options: Any) -> Any:
            made = super().__new__(cls)
            made.name = options["batch_size"]
            return made

    class NamedLoader(DataLoader[Any], Named):
        name: int

    with everything():
        loader = NamedLoader(Numbers(4), batch_size=2)
        assert loader.name == 2 and len(list(loader)) == 2
