"""Small trainings on several ranks, by gloo, each rank recorded into a part of one run.

    python -m tests.tracing.ranks DIR NAME …     records them into DIR/NAME, as main() does

Each is a function of its rank. All are forked from one process: torch is imported once.
"""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler

import minidl
import tracing
from tracing.recording.torch_loader.attach import everything

WORLD = 2


class Numbers(Dataset):
    def __init__(self, n: int = 43, seconds: float = 0.0) -> None:
        self.n, self.seconds = n, seconds

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, key: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.tensor([float(key)])


class Stream(IterableDataset):
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.zeros(1) for _ in range(self.n))


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


def train(loader: object, epochs: int = 2, after_step: float = 0.0, set_epoch: bool = True) -> None:
    for epoch in range(epochs):
        if set_epoch and hasattr(loader.sampler, "set_epoch"):  # type: ignore[attr-defined]
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for _ in loader:  # type: ignore[attr-defined]
            dist.all_reduce(torch.ones(1))
            time.sleep(after_step)


def loader_of(rank: int, **options: object) -> DataLoader:
    dataset = options.pop("dataset", None) or Numbers()
    return DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset), **options)  # type: ignore[arg-type]


def even(rank: int) -> None:
    """43 samples for two ranks: one of them twice. The validation is shuffled, and never told its epochs."""
    torch.manual_seed(rank)
    dataset = Numbers()
    loader = loader_of(rank, num_workers=2)
    validation = DataLoader(Numbers(16), batch_size=4, sampler=DistributedSampler(Numbers(16)))
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        train(loader, 1, set_epoch=False)
        for _ in validation:
            pass
        if rank == 0:
            list(DataLoader(dataset, batch_size=16))


def dropped(rank: int) -> None:
    loader = minidl.DataLoader(
        Numbers(), batch_size=4, sampler=minidl.DistributedSampler(Numbers(), drop_last=True), drop_last=True
    )
    train(loader)


def left(rank: int) -> None:
    loader = loader_of(rank, num_workers=1, persistent_workers=True)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for number, _ in enumerate(loader):
            if number == 2:
                break


def own_sampler(rank: int) -> None:
    train(DataLoader(Numbers(), batch_size=4, sampler=WithReplacement(rank)))


def streams(rank: int) -> None:
    train(DataLoader(Stream(20), batch_size=4, num_workers=1))


def model_parallel(rank: int) -> None:
    """Both ranks hold a part of one model: they load the same."""
    torch.manual_seed(1)
    train(
        DataLoader(
            Numbers(), batch_size=4, sampler=DistributedSampler(Numbers(), num_replicas=1, rank=0), num_workers=1
        )
    )


def tensor_parallel(rank: int) -> None:
    """So do these, by a sampler that says nothing of ranks; their workers have equal seeds, to augment alike."""
    torch.manual_seed(1)
    order = torch.randperm(43, generator=torch.Generator().manual_seed(7)).tolist()
    train(DataLoader(Numbers(), batch_size=4, sampler=order, num_workers=1), set_epoch=False)  # type: ignore[arg-type]


def slow(rank: int) -> None:
    train(loader_of(rank, dataset=Numbers(160, 0.01 if rank else 0.001), num_workers=1), 1)


def late(rank: int) -> None:
    """Rank 0 writes a checkpoint, say, after each step."""
    train(loader_of(rank, dataset=Numbers(320), num_workers=1), 1, after_step=0.0 if rank else 0.02)


def validates(rank: int) -> None:
    loader = loader_of(rank)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        train(loader, 1, set_epoch=False)
        if rank == 0:
            list(DataLoader(Numbers(20, 0.01), batch_size=4))


def alone(rank: int) -> None:
    """The ranks never wait for each other, and rank 1 is slower."""
    time.sleep(0.1 * rank)
    for _ in loader_of(rank, dataset=Numbers(320, 0.002 * rank)):
        time.sleep(0.001)


def forgotten(rank: int) -> None:
    train(loader_of(rank, num_workers=1), set_epoch=False)


def forgotten_anew(rank: int) -> None:
    for _ in range(2):
        train(loader_of(rank), 1, set_epoch=False)


def unshared(rank: int) -> None:
    torch.manual_seed(1)
    train(DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=1))


def all_of_it(rank: int) -> None:
    torch.manual_seed(rank)
    train(DataLoader(Numbers(), batch_size=4, shuffle=True))


def same_share(rank: int) -> None:
    train(DataLoader(Numbers(), batch_size=4, sampler=DistributedSampler(Numbers(), num_replicas=2, rank=0)))


def other_seeds(rank: int) -> None:
    train(DataLoader(Numbers(), batch_size=4, sampler=DistributedSampler(Numbers(), seed=rank)))


def too_many_shares(rank: int) -> None:
    train(DataLoader(Numbers(), batch_size=4, sampler=DistributedSampler(Numbers(), num_replicas=4, rank=rank)))


def hangs(rank: int) -> None:
    """Rank 1 has a batch more, and waits for rank 0, which is gone."""
    for _ in DataLoader(Stream(20 if rank else 16), batch_size=4):
        dist.all_reduce(torch.ones(1))
        time.sleep(0.005)
    if rank == 0:
        time.sleep(0.2)
        os._exit(0)


def idle_at_the_end(rank: int) -> None:
    for _ in range(2):
        for number, _ in enumerate(DataLoader(Stream(24 if rank else 16), batch_size=4)):
            if number < 4:
                dist.all_reduce(torch.ones(1))
        dist.barrier()


def seeds(rank: int) -> None:
    torch.manual_seed(1)
    train(loader_of(rank, num_workers=2))


def reseeded(rank: int) -> None:
    torch.manual_seed(1)
    train(loader_of(rank, num_workers=2, worker_init_fn=lambda worker: torch.manual_seed(10 * rank + worker)))


def options(rank: int) -> None:
    torch.manual_seed(rank)
    train(loader_of(rank, num_workers=2 - rank))


PROGRAMS: dict[str, Callable[[int], None]] = {
    each.__name__: each
    for each in (
        even, dropped, left, own_sampler, streams, model_parallel, slow, late, validates, alone, forgotten,
        forgotten_anew, unshared, tensor_parallel, all_of_it, same_share, other_seeds, too_many_shares, hangs,
        idle_at_the_end, seeds, reseeded, options,
    )
}  # fmt: skip


def run_rank(program: Callable[[int], None], directory: Path, rank: int) -> None:
    part = directory / "parts" / f"rank{rank}-{os.getpid()}"
    torch.set_num_threads(1)
    recording = tracing.record(part).start()
    file = part / "trace.json"
    rank_of = {"rank": rank, "local_rank": rank, "world_size": WORLD, "host": socket.gethostname()}
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **rank_of}))
    limit = datetime.timedelta(seconds=5)
    dist.init_process_group("gloo", f"file://{directory}/store", limit, WORLD, rank)
    try:
        with everything():
            program(rank)
    except RuntimeError as error:
        print(f"rank {rank}: {error}", file=sys.stderr)  # of gloo: the others have gone
    recording.stop()
    os._exit(0)


def main(directory: Path, names: list[str]) -> None:
    for name in names:
        (directory / name / "parts").mkdir(parents=True)
        context = multiprocessing.get_context("fork")
        ranks = [
            context.Process(target=run_rank, args=(PROGRAMS[name], directory / name, rank)) for rank in range(WORLD)
        ]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
