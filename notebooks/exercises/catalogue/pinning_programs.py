"""Programs of exercise 10, with a pin thread: their batches may fail to be read, unpickled or pinned."""

from __future__ import annotations

from typing import Any

import minidl
from notebooks.exercises.programs import Keys, Stream, let_others_run


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


class Faulty(Keys):
    """Sample 1 cannot be read."""

    def __getitem__(self, key: int) -> int:
        if key == 1:
            raise ValueError("sample 1 cannot be read")
        return super().__getitem__(key)


def loaded(dataset: Any, collate_fn: Any = Batch, epochs: int = 1, **options: Any) -> list[str]:
    """What the training loop gets: batches, and names of exceptions. It gives up after a RuntimeError."""
    options |= {"batch_size": 1, "num_workers": 2, "prefetch_factor": 1, "collate_fn": collate_fn, "pin_memory": "host"}
    loader: Any = minidl.DataLoader(dataset, **options)
    found: list[str] = []
    for _ in range(epochs):
        iterator = iter(loader)
        while not found or found[-1] != "RuntimeError":
            let_others_run()
            try:
                found.append(str(next(iterator)))
            except StopIteration:
                break
            except (RuntimeError, ValueError) as error:
                found.append(type(error).__name__)
    return found


def plain() -> list[str]:
    return loaded(Keys(4))


def faulty() -> list[str]:
    return loaded(Faulty(4))


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
    return loaded(Faulty(4), Unpinnable) + loaded(Keys(4), Unpinnable)
