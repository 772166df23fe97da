"""What the programs here share: samples with a known cost, a small model, and a clock."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def compute(milliseconds: float) -> None:
    """Keep a core busy, so much of its time as that."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass


def wait(milliseconds: float) -> None:
    time.sleep(milliseconds / 1000)


class Samples(torch.utils.data.Dataset):
    """`n` pairs: eight numbers and a class. `work()` is done for each."""

    def __init__(self, n: int, work: Callable[[], None] = lambda: None) -> None:
        self.x, self.y = torch.randn(n, 8), torch.randint(2, (n,))
        self.work = work

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, key: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.work()
        return self.x[key], self.y[key]


def model() -> torch.nn.Module:
    return torch.nn.Linear(8, 2)


@contextlib.contextmanager
def clock() -> Iterator[None]:
    """Prints how long the training takes: what it is compared by, with the tracer and without."""
    torch.set_num_threads(1)  # the cores are for the workers
    begin = time.monotonic()
    yield
    if RANK == 0:
        print(f"trained in {time.monotonic() - begin:.3f} s", flush=True)


def train(loader: Iterable[Any], pair: Callable[[Any], tuple[torch.Tensor, torch.Tensor]] = tuple) -> None:
    """Train the model on its batches. `pair` takes a batch apart: eight numbers and a class for each sample."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with clock():
        for batch in loader:
            x, y = pair(batch)
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
