"""Small trainings on several ranks, by gloo, each rank recorded into a part of one run.

    python -m tests.tracing.ranks.programs DIR NAME …     records them into DIR/NAME, as main() does

Each is a function of its rank. All are forked from one process: torch is imported once.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler

import minidl
import tracing
from tests.samples import Samples, Stream, napping

WORLD = 2
NUMBERS = Samples(43)


class WithReplacement(Sampler):
    """A sampler of the user's own, which has what a DistributedSampler has."""

    def __init__(self, rank: int) -> None:
        self.num_replicas, self.rank, self.seed, self.epoch = WORLD, rank, 0, 0

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        generator = torch.Generator().manual_seed(10 * self.epoch + self.rank)
        return iter(torch.randint(43, (20,), generator=generator).tolist())

    def __len__(self) -> int:
        return 20


def loader(dataset: Any = None, seed: int | None = None, own: dict[str, Any] | None = None, **options: Any) -> Any:
    """Batches of 4. `own`: arguments of the DistributedSampler, unless `options` have another; `seed`: main's."""
    if seed is not None:
        torch.manual_seed(seed)
    dataset = dataset or NUMBERS
    if not {"sampler", "shuffle"} & options.keys() and not isinstance(dataset, IterableDataset):
        options["sampler"] = DistributedSampler(dataset, **(own or {}))
    return DataLoader(dataset, batch_size=4, **options)


def train(loader: Any, epochs: int = 2, after_step: float = 0.0, set_epoch: bool = True, most: int = 1 << 30) -> None:
    for epoch in range(epochs):
        if set_epoch and hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for number, _ in enumerate(loader):
            dist.all_reduce(torch.ones(1))
            time.sleep(after_step)
            if number == most:
                break


def train_and_validate(loader: Any, epochs: int, validation: Any = (), by_rank_0: Any = ()) -> None:
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        train(loader, 1, set_epoch=False)
        list(validation)
        if dist.get_rank() == 0:
            list(by_rank_0)


def even(rank: int) -> None:
    """43 samples for two ranks: one of them twice. Rank 0 looks at all of them before, and after each epoch. The
    validation is shuffled, without set_epoch."""
    whole = DataLoader(NUMBERS, 16)
    if rank == 0:
        list(whole)
    train_and_validate(loader(seed=rank, num_workers=2), 2, loader(Samples(16)), whole)


def dropped(rank: int) -> None:
    sampler = minidl.DistributedSampler(NUMBERS, drop_last=True)
    train(minidl.DataLoader(NUMBERS, batch_size=4, sampler=sampler, drop_last=True))


def alone(rank: int) -> None:
    """The ranks never wait for each other, and rank 1 is slower."""
    time.sleep(0.1 * rank)
    for _ in loader(Samples(320, napping(0.002 * rank))):
        time.sleep(0.001)


def forgotten_rebuilt(rank: int) -> None:
    for _ in range(2):
        train(loader(), 1, set_epoch=False)


def hangs(rank: int) -> None:
    """Rank 1 has a batch more, and waits for rank 0, which is gone. (After these steps it shows that they wait.)"""
    train(loader(Stream(range(104 if rank else 100))), 1, after_step=0.005)
    if rank == 0:
        time.sleep(0.2)
        os._exit(0)


def idle_at_the_end(rank: int) -> None:
    for _ in range(2):
        for number, _ in enumerate(loader(Stream(range(24 if rank else 16)))):
            if number < 4:
                dist.all_reduce(torch.ones(1))
        dist.barrier()


PROGRAMS: dict[str, Callable[[int], None]] = {
    "even": even,
    "dropped": dropped,
    "left": lambda rank: train(loader(seed=rank, num_workers=1, persistent_workers=True), most=2),
    "own_sampler": lambda rank: train(loader(sampler=WithReplacement(rank))),
    "streams": lambda rank: train(loader(Stream(range(20)), seed=rank, num_workers=1)),
    # Both ranks hold a part of one model, and load the same: their sampler says so.
    "model_parallel": lambda rank: train(loader(seed=1, own={"num_replicas": 1, "rank": 0}, num_workers=1)),
    "slow": lambda rank: train(loader(Samples(160, napping(0.01 if rank else 0.001)), num_workers=1), 1),
    # Rank 0 writes a checkpoint, say, after each step.
    "late": lambda rank: train(loader(Samples(320), num_workers=1), 1, after_step=0.0 if rank else 0.02),
    "validates": lambda rank: train_and_validate(loader(), 3, by_rank_0=DataLoader(Samples(20, napping(0.01)), 4)),
    "alone": alone,
    "forgotten": lambda rank: train(loader(num_workers=1), set_epoch=False),
    "forgotten_rebuilt": forgotten_rebuilt,
    "unshared": lambda rank: train(loader(seed=1, shuffle=True, num_workers=1)),
    "all_of_it": lambda rank: train(loader(seed=rank, shuffle=True)),
    "same_share": lambda rank: train(loader(own={"num_replicas": 2, "rank": 0})),
    "too_many_shares": lambda rank: train(loader(own={"num_replicas": 4, "rank": rank})),
    "hangs": hangs,
    "idle_at_the_end": idle_at_the_end,
    "seeds": lambda rank: train(loader(seed=1, num_workers=2)),
    "reseeded": lambda rank: train(
        loader(seed=1, num_workers=2, worker_init_fn=lambda worker: torch.manual_seed(10 * rank + worker))
    ),
}


def run_rank(program: Callable[[int], None], directory: Path, rank: int) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD))
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=5)
    dist.init_process_group("gloo", f"file://{directory}/store", limit, WORLD, rank)
    try:
        program(rank)
    except RuntimeError as error:
        print(f"rank {rank}: {error}", file=sys.stderr)  # of gloo: the others have gone


def main(directory: Path, names: list[str]) -> None:
    for name in names:
        with tracing.record(directory / name):
            context, arguments = multiprocessing.get_context("fork"), (PROGRAMS[name], directory / name)
            ranks = [context.Process(target=run_rank, args=(*arguments, rank)) for rank in range(WORLD)]
            for each in ranks:
                each.start()
            for each in ranks:
                each.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
