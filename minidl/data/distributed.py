"""Which keys this process takes when several train together: one shard of the epoch each.

Legend, with 10 samples, 4 replicas, no shuffling
    num_replicas   4    processes that train together; each has its own loader and its own sampler
    rank           1    which of them this one is, from 0
    num_samples    3    keys that each of them yields in an epoch
    total_size    12    num_samples * num_replicas: the keys of all, padding included

    0 1 2 3 4 5 6 7 8 9 | 0 1     rank 1 takes every fourth from the second on: 1 5 9
    drop_last: 0 1 2 3 4 5 6 7    and num_samples is 2:                         1 5
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from minidl.data.sampler import Sampler, T_co


class DistributedSampler(Sampler[T_co]):
    """One rank's share of the keys of a map-style dataset.

    The ranks do not talk to each other: they draw the same permutation from the same seed, and take every
    `num_replicas`-th key of it, each from its own start. All yield the same number of keys, because a rank
    with one batch more than the others would wait for ever in its next collective operation.

    Args:
        dataset: only its length matters, which must be the same on every rank and in every epoch.
        num_replicas: the number of processes; torch.distributed's world size if None.
        rank: this process's number; torch.distributed's rank if None.
        shuffle: a new permutation for every epoch. Call `set_epoch` before each, or all are the same.
        seed: the same on every rank.
        drop_last: cut the tail that does not divide evenly; else repeat keys from the start to fill it up.

    Raises:
        RuntimeError: torch was built without its distributed package, and a default would need it.
        ValueError: `rank` is not in [0, num_replicas), or a default is asked for without a process group.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if (num_replicas is None or rank is None) and not dist.is_available():
            raise RuntimeError("Requires distributed package to be available")
        self.num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
        self.rank = dist.get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"Invalid rank {self.rank}, rank should be in the interval [0, {self.num_replicas - 1}]")
        self.dataset = dataset
        self.epoch = 0
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        share = len(dataset) / self.num_replicas  # 2.5 samples per replica: drop some, or repeat some
        self.num_samples = math.floor(share) if drop_last else math.ceil(share)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[T_co]:
        """The keys of this rank. All are drawn here, before the first is asked for.

        Raises:
            AssertionError: the dataset's length has changed since the sampler was made.
        """
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            keys = torch.randperm(len(self.dataset), generator=generator).tolist()
        else:
            keys = list(range(len(self.dataset)))

        if self.drop_last:
            keys = keys[: self.total_size]
        else:
            missing = self.total_size - len(keys)
            # With more replicas than samples one pass over the keys is not enough to fill up from.
            passes = math.ceil(missing / len(keys)) if missing > len(keys) else 1
            keys += (keys * passes)[:missing]
        if len(keys) != self.total_size:
            raise AssertionError(f"Number of indices ({len(keys)}) does not match total_size ({self.total_size})")

        return iter(keys[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of the next iteration. Every rank must choose the same."""
        self.epoch = epoch
