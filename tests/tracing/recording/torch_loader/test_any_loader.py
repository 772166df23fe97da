"""Every loader is recorded that makes torch's iterators, or iterators like them, in any library; any other is named.

Each class here does what one library or many a user does, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.data.dataloader import (  # before anything is attached: as a program's modules may
    _BaseDataLoaderIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

import tracing
from minidl.events import Kind
from tests.minidl.batches import BATCHES
from tests.samples import Samples
from tracing.recording.torch_loader.fetcher import digest_of


class Doubling(_MultiProcessingDataLoaderIter):
    """Changes each batch, and keeps its loader."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self.loader = loader

    def _next_data(self) -> Any:
        assert isinstance(self.loader, DoublingLoader) and len(self.loader) == 3
        return super()._next_data() * 2


class DoublingLoader(DataLoader[Any]):
    def _get_iterator(self) -> Any:
        return Doubling(self) if self.num_workers else super()._get_iterator()


class Generating(DataLoader[Any]):
    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch.clone()


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
        return iter([torch.tensor([k]) for k in range(info.id if info else 0, 6, info.num_workers if info else 1)])


def plain(workers: int) -> DataLoader[Any]:
    return DataLoader(Samples(6), 2, num_workers=workers)


def iterator_of(loader: Any) -> Any:
    return (_MultiProcessingDataLoaderIter if loader.num_workers else _SingleProcessDataLoaderIter)(loader)


LOADERS: dict[str, Callable[[int], Any]] = {
    "iterator built directly": lambda workers: iterator_of(plain(workers)),
    "own iterator": lambda workers: DoublingLoader(Samples(6), 2, num_workers=workers),
    "own __iter__": lambda workers: Generating(Samples(6), 2, num_workers=workers),
    "no DataLoader": lambda workers: iterator_of(Fake(workers)),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", LOADERS)
def test_it_is_recorded_and_yields_what_it_yields_alone(name: str, workers: int, tmp_path: Path) -> None:
    alone = [batch.tolist() for batch in LOADERS[name](workers)]
    with tracing.record(tmp_path / "trace"):
        assert [batch.tolist() for batch in LOADERS[name](workers)] == alone
    list(plain(0))  # none is recorded afterwards
    trace = tracing.load(tmp_path / "trace", strict=True)
    assert len(trace.loaders) == 1 and tracing.check(trace) == []
    count = {kind.name: int((trace.events["kind"] == kind).sum()) for kind in Kind}
    assert count["YIELDED"] == count["FETCH_END"] == count["COLLATE_END"] == len(alone) >= 3
    assert count["WORKER_BEGIN"] == trace.loaders[0].num_workers == workers


def test_a_batch_of_any_kind_can_be_recorded(tmp_path: Path) -> None:
    """One that has no size, as a sparse tensor, or that raises when it is looked at."""

    class Forbidden(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError

    made = {name: make() for name, make in BATCHES.items()} | {"forbidden": Forbidden([1])}
    with tracing.record(tmp_path / "trace"):
        for name, batch in made.items():
            yielded = [id(each) for each in DataLoader([0], collate_fn=lambda _, batch=batch: batch)]
            assert yielded == [id(batch)], name
    assert len(tracing.load(tmp_path / "trace", strict=True).loaders) == len(made)


@pytest.mark.parametrize("of", [torch.zeros, np.zeros])
def test_a_digest_is_of_numbers_from_all_parts(of: Callable[..., Any]) -> None:
    """Pictures may all begin with a dark sky."""
    for size in (8, 28, 512):
        dark, light = of((size, size)), of((size, size))
        light[size // 2 :] = 1
        assert digest_of([dark, 1]) == digest_of([of((size, size)), 1]) != digest_of([light, 1]), size


# ---- what cannot be recorded is named


class Alien(_BaseDataLoaderIter):
    def _next_data(self) -> Any:
        return self._dataset[next(self._sampler_iter)[0]]


class Registered(_SingleProcessDataLoaderIter):
    """Cannot be subclassed as if nothing were."""

    def __init_subclass__(cls, name: str) -> None:
        raise AssertionError


def loader_of(iterator: Any) -> Any:
    return type(f"Of{iterator.__name__}", (DataLoader,), {"_get_iterator": lambda loader: iterator(loader)})


@pytest.mark.parametrize("loader", [loader_of(Alien), loader_of(Registered)])
def test_what_was_not_seen_is_named(loader: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = list(loader(Samples(3)))
    with tracing.record(tmp_path / "trace"):
        assert list(loader(Samples(3))) == list(loader(Samples(3))) == alone
    said = f"tracing: {loader.__name__} is not recorded: its iterators are unlike those of torch 2.4 to 2.15\n"
    assert capsys.readouterr().err == said, "once"
    assert tracing.load(tmp_path / "trace", strict=True).loaders == []
