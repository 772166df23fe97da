"""Which way batches go: by slots, or as torch sends them."""

from __future__ import annotations

import io
import pickle
from typing import Any

from minidl.transport.memory import NO_SLOT
from minidl.world import Memory, World

VARIABLE = "MINIDL_TRANSPORT"  # the environment variable that decides for a whole program


class Handles:
    """Both sides of torch's own way, which is also that of the index queues: each tensor goes as a handle to shared
    memory of its own, and there are no slots."""

    def __init__(self, world: World) -> None:
        self._world = world

    def room(self, slot: int, fresh: bool) -> None:
        return None

    def pack(self, message: Any) -> tuple[list[Any], Memory | None]:
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream)
        pickler.dispatch_table = self._world.reducers
        pickler.dump(message)
        return [stream.getbuffer()], None

    def unpack(self, data: bytes, memory: Memory | None) -> Any:
        return pickle.loads(data)

    def grant(self, epoch_id: int, task_id: int) -> tuple[int, bool]:
        return NO_SLOT, False

    def reclaim(self) -> None:
        pass

    rest = reclaim


def transport_of(name: str | None, world: World) -> str:
    """What DataLoader's argument stands for: "slots" or "torch".

    ValueError: it is neither, or the environment variable is. RuntimeError: slots are asked for, and cannot be had.
    """
    asked = name or world.environment.get(VARIABLE)
    if asked not in (None, "", "slots", "torch"):
        where = "transport option" if name else VARIABLE
        raise ValueError(f'{where} should be "slots" or "torch", but got {asked!r}')
    if asked == "slots" and not world.can_send_memory():
        raise RuntimeError('transport="slots" needs memfd_create and /proc, which this system lacks: use "torch"')
    return asked or ("slots" if world.can_send_memory() else "torch")
