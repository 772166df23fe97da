"""What LOADER's text says of where the keys come from: the same of torch's loader and of minidl's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch.utils.data

import minidl
import tracing
from tracing.recording.loader_text import drawing_of

UNKNOWN = dict.fromkeys(("dataset_size", "sampler_replicas", "sampler_rank", "sampler_epoch", "sampler_seed"))


class Raising:
    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError


def test_a_distributed_sampler_is_found_wherever_it_is() -> None:
    for package in (minidl, torch.utils.data):
        sampler = package.DistributedSampler(range(10), 4, 3, seed=7)
        sampler.set_epoch(5)
        batches = package.BatchSampler(sampler, 2, False)
        for options in ({"sampler": sampler}, {"batch_sampler": batches}, {"batch_size": None, "sampler": batches}):
            found = drawing_of(package.DataLoader(range(10), **options))
            assert list(found.values()) == [10, 4, 3, 5, 7], (package, options)


def test_without_one_only_the_datasets_size_is_known() -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    for package in (minidl, torch.utils.data):
        assert drawing_of(package.DataLoader(range(10), shuffle=True)) == UNKNOWN | {"dataset_size": 10}
        assert drawing_of(package.DataLoader(Stream())) == UNKNOWN
    assert drawing_of(Raising()) == UNKNOWN


def test_equal_orders_have_equal_hashes(tmp_path: Path) -> None:
    """Of minidl and of torch, whatever the size of the batches; another epoch has another order."""
    orders = []
    for package, size in ((minidl, 3), (torch.utils.data, 5)):
        sampler = package.DistributedSampler(range(20), 2, 1)
        loader = package.DataLoader(range(20), size, sampler=sampler)
        if package is not minidl:
            tracing.attach(loader)
        with tracing.record(tmp_path / package.__name__):
            for epoch in (0, 1, 0):
                sampler.set_epoch(epoch)
                list(loader)
        trace = tracing.load(tmp_path / package.__name__)
        (number,) = {each.loader for each in trace.loaders}
        orders.append([trace.order(number, epoch) for epoch in range(3)])
    assert orders[0] == orders[1]
    first, second, again = orders[0]
    assert first == again != second
