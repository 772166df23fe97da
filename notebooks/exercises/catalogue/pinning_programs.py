"""Programs of exercise 10, with a pin thread: their batches may fail to be read, unpickled or pinned."""

from __future__ import annotations

from typing import Any

import minidl
from notebooks.exercises.programs import Keys, Stream, batches_or_errors, let_others_run


class Batch:
    """A batch that knows whether it is pinned."""

    def __init__(self, samples: list[int], pinned: bool = False) -> None:
        self.samples, self.pinned = samples, pinned

    def pin_memory(self) -> Batch:
        let_others_run()
        return Batch(self.samples, True)

    def __str__(self) -> str:
        return f"{self.samples[0]} pinned" if self.pinned else f"{self.samples[0]} not pinned"


class Unpinnable(Batch):
    """Batch 1 cannot be pinned."""

    def pin_memory(self) -> Batch:
        if self.samples == [1]:
            raise ValueError("no memory is left to lock")
        return super().pin_memory()


class Unreadable(Batch):
    """Batch 1 cannot be unpickled."""

    def __reduce__(self) -> Any:
        return _unpickle, (self.samples,)


def _unpickle(samples: list[int]) -> Batch:
    if samples == [1]:
        raise ValueError("the shared memory is gone")
    return Batch(samples)


def loaded(dataset: Any, collate_fn: Any = Batch, epochs: int = 1, **options: Any) -> list[str]:
    """What the training loop gets: batches, and names of exceptions."""
    options |= {"batch_size": 1, "num_workers": 2, "prefetch_factor": 1, "collate_fn": collate_fn, "pin_memory": "host"}
    loader: Any = minidl.DataLoader(dataset, **options)
    return [str(each) for _ in range(epochs) for each in batches_or_errors(iter(loader))]


def plain() -> list[str]:
    return loaded(Keys(4))


def faulty() -> list[str]:
    return loaded(Keys(4, unreadable=1))


def unpinnable() -> list[str]:
    return loaded(Keys(4), Unpinnable)


def unreadable() -> list[str]:
    return loaded(Keys(4), Unreadable)


def epochs() -> list[str]:
    return loaded(Keys(2), epochs=2, persistent_workers=True)


def streams() -> list[str]:
    return loaded(Stream(1, 2))


def mixed() -> list[str]:
    """For real processes: everything but the unreadable batch, which takes half a second."""
    return loaded(Keys(4, unreadable=1), Unpinnable) + loaded(Keys(4), Unpinnable)
