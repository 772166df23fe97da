"""What LOADER's text says of where the keys come from: the same of torch's loader and of minidl's."""

from __future__ import annotations

from collections.abc import Iterator

import torch.utils.data

import minidl
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
