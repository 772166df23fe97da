"""Programs about what crosses from a worker to main: odd batches of every kind, and the memory that they take."""

from __future__ import annotations

import collections
from typing import Any

import torch

from minidl.events import Kind
from minidl.transport import DIRECT
from minidl.world.simulated import machine as machines
from minidl.world.simulated import step
from tests.minidl.batches import BATCHES, described
from tests.minidl.simulated.lending import Numbers
from tests.minidl.simulated.worth import Worth, timed
from tests.minidl.simulated.worth_exploring import Keys, loader, one

# At the borders of what lies in a slot.
DIRECTS = DIRECT // 4, DIRECT // 2, DIRECT // 4 - 1
ODD = {**BATCHES, "borders": lambda: [torch.full((length,), float(length)) for length in DIRECTS]}
SLOTS_ONLY = "every dtype", "storage"  # torch cannot pin all of them, nor send them between simulated processes


def in_full(batch: Any) -> Any:
    """How large the tensors' storages are, too, and which of them are the same."""
    things = list(batch.values()) if isinstance(batch, dict) else batch if isinstance(batch, list) else [batch]
    storages = [each.untyped_storage() for each in things if getattr(each, "layout", None) is torch.strided]
    first = [each._cdata for each in storages]
    return repr(described(batch)), [(len(each), first.index(each._cdata)) for each in storages]


def odd_batches(without: tuple[str, ...] = (), **options: Any) -> list[Any]:
    odd = [make for name, make in ODD.items() if name not in without]
    dataset = Keys(len(odd), make=lambda key: odd[key]())
    return [in_full(batch) for batch in loader(dataset, collate_fn=one, **options)]


def memory_made(sizes: tuple[int, ...], held: int = 1, epochs: int = 1, **options: Any) -> list[Any]:
    """How much memory the workers make (bytes each), and whether the last `held` batches are what they were."""
    load = loader(Numbers(sizes), collate_fn=one, **options)
    kept: collections.deque[Any] = collections.deque(maxlen=held)
    for _ in range(epochs):
        for batch in load:
            kept.append(batch)
            del batch
            step()
    values = [sorted(set(each.tolist())) for each in kept]
    return [values, [event[7] for event in machines.current_machine().outcome.events if event[2] == Kind.SLOT_MADE]]


even, mixed = (100,) * 24, (10, 5000, 10, 40_000, 10, 0, 5000, *[10] * 40)
MOVES: dict[str, Worth] = {
    "odd batches": timed(odd_batches),
    "odd batches, torch's way": timed(odd_batches, SLOTS_ONLY, num_workers=1).torchs_way(),
    "odd batches, pinned": timed(odd_batches, SLOTS_ONLY, pin_memory="host"),
    "odd batches, serial, pinned": timed(odd_batches, SLOTS_ONLY, num_workers=0, pin_memory="host"),
    "memory while batches are held": timed(memory_made, even, 6, num_workers=1),
    "memory for batches of all sizes": timed(memory_made, mixed),
    "memory for batches of all sizes, held": timed(memory_made, mixed, 50, prefetch_factor=1),
    "memory, large ones": timed(memory_made, (DIRECT,) * 12, 3),
}
