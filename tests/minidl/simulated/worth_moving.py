"""Programs about what crosses from a worker to main: odd batches of every kind, and the memory that they take."""

from __future__ import annotations

import collections
import copyreg
import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from minidl import world as worlds
from minidl.events import Kind
from minidl.transport import DIRECT
from minidl.transport.pickling import Pickled
from minidl.world.simulated import machine as machines
from minidl.world.simulated import step
from minidl.world.simulated.simulation import sleep
from tests.minidl.simulated.programs import TORCHS_WAY
from tests.minidl.simulated.worth import Worth
from tests.minidl.simulated.worth_exploring import Keys, loader, lost_in_full, one

Point = collections.namedtuple("Point", "x y")


class Listed(list[Any]):
    """A list of a type of its own."""


class Mapped(dict[str, Any]):
    """A mapping of a type of its own."""


def base() -> torch.Tensor:
    return torch.arange(24, dtype=torch.float32).reshape(4, 6)


def twice() -> Any:
    same = base()
    return [same, same, same.view(-1)[3:9], same.t(), {"same": same}]


def read_only() -> np.ndarray:
    array = np.arange(5)
    array.flags.writeable = False
    return array


def two_views(whole: torch.Tensor) -> list[torch.Tensor]:
    """Each fills the storage."""
    return [whole, whole.view(24), whole.view(2, 12)]


def far_apart(whole: torch.Tensor) -> list[torch.Tensor]:
    return [whole[400:410], whole[100:103], whole[700:702], whole[40:41]]


ODD: tuple[Callable[[], Any], ...] = (
    *(base, twice, read_only),
    lambda: [base()[1:3], base()[:, 2], base().t(), base()[::2, ::3], torch.arange(1_000)[7:12]],
    lambda: [torch.empty(0), torch.empty(3, 0, 2), torch.tensor(5), torch.zeros(1, 4)[:, ::2], base()[:0].t()],
    lambda: [base().expand(3, 4, 6), torch.tensor(1.0).expand(5), base()[None], base().to(torch.bfloat16)],
    lambda: [base().requires_grad_(), torch.nn.Parameter(base()), base().to_sparse(), torch.zeros(2).conj()],
    lambda: [torch.complex(base(), base()).conj(), torch.complex(base(), base()).conj().imag],
    lambda: torch.quantize_per_tensor(base(), 0.5, 1, torch.quint8),
    lambda: [base().bool(), base().to(torch.uint8), base().to(torch.int64), base().half(), base().double()],
    lambda: [np.arange(6)[::-1], np.arange(12).reshape(3, 4).T, np.asfortranarray(np.ones((2, 3))), np.array(5)],
    lambda: [np.array(["a", "bc"]), np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), np.ones(3, ">f4")],
    lambda: [np.array([1, "two", None], dtype=object), np.float32(3), np.zeros((0, 3)), np.datetime64("2020-01-01")],
    lambda: Point(base(), [base()[0], "text", b"bytes", None, 3, 2.5, {1, 2}]),
    lambda: Listed([base(), Mapped(a=base(), b=(1, base()))]),
    lambda: [torch.full((DIRECT // 4,), 7.0), torch.full((DIRECT // 2,), 3.0), torch.full((DIRECT // 4 - 1,), 1.0)],
    lambda: [torch.arange(3).share_memory_(), torch.arange(10)[2:4].numpy()],
    # Views of a small part, the later one first; a storage of one byte; strides that no contiguous tensor needs.
    lambda: far_apart(torch.arange(1_000)),
    lambda: far_apart(torch.arange(1_000))[::-1],
    lambda: two_views(base()),
    lambda: [torch.arange(1_000)[300:900], torch.arange(1_000)[300:700], torch.tensor([7], dtype=torch.uint8)[None]],
    lambda: [torch.empty(0).as_strided((3, 0, 2), (7, 5, 3)), torch.zeros(6).as_strided((1, 6), (99, 1))],
    lambda: torch.zeros(6).as_strided((6, 1), (1, 9)),
    lambda: [torch.arange(8)[:2].expand(4, 2), torch.nested.nested_tensor([base()[0], base()[1, :3]])],
)


def bare() -> Any:
    return torch.tensor([7], dtype=torch.uint8).untyped_storage()


class Odd(Keys):
    def __init__(self, makes: tuple[Callable[[], Any], ...]) -> None:
        super().__init__(len(makes))
        self.makes = makes

    def __getitem__(self, key: int) -> Any:
        step()
        return self.makes[key]()


def without_its_memory() -> list[str]:
    """A pickle alone does not give a tensor."""
    found = []
    for thing in (base(), base()[1:3], bare()):
        try:
            pickle.loads(Pickled(thing, copyreg.dispatch_table).stream.getvalue())
        except pickle.UnpicklingError as error:
            found.append(str(error))
    return found


def described(thing: Any) -> Any:
    """What can be told of a batch, its values and how they lie."""
    if isinstance(thing, torch.Tensor):
        if thing.is_nested:
            return "nested", described(list(thing.unbind()))
        strided = thing.layout is torch.strided
        layout = (tuple(thing.stride()), thing.storage_offset(), len(thing.untyped_storage())) if strided else None
        flags = thing.requires_grad, thing.is_conj(), thing.is_neg(), thing.is_quantized
        values = thing.detach().dequantize() if thing.is_quantized else thing.detach().to_dense()
        shown = values.resolve_conj().resolve_neg().reshape(-1)[:30].tolist()
        return type(thing).__name__, str(thing.dtype), tuple(thing.shape), layout, flags, shown
    if isinstance(thing, np.ndarray):
        return str(thing.dtype), thing.shape, thing.strides, thing.flags.writeable, thing.reshape(-1).tolist()
    if isinstance(thing, dict):
        return type(thing).__name__, {key: described(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return type(thing).__name__, [described(value) for value in thing]
    return repr(thing)


def shared(batch: Any) -> Any:
    """Which tensors of a list lie in the same memory: writing to one shows in the others."""
    tensors = [each for each in batch if isinstance(each, torch.Tensor)] if isinstance(batch, list) else []
    if len(tensors) < 2 or any(
        each.layout is not torch.strided or each.is_nested or each.requires_grad for each in tensors
    ):
        return None
    storages = [each.untyped_storage()._cdata for each in tensors]
    return [storages.index(each) for each in storages]


def odd_batches(makes: tuple[Callable[[], Any], ...] = ODD, **options: Any) -> list[Any]:
    batches = list(loader(Odd(makes), collate_fn=one, **options))
    return [(described(batch), shared(batch)) for batch in batches]


class Sized(Keys):
    """Sample k has so many bytes."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(len(sizes))
        self.sizes = sizes

    def __getitem__(self, key: int) -> torch.Tensor:
        return torch.full((self.sizes[key],), key % 200, dtype=torch.uint8)


def memory_made(sizes: tuple[int, ...], held: int = 1, epochs: int = 1, **options: Any) -> list[Any]:
    """How much memory the workers make (bytes each), and whether the last `held` batches are what they were."""
    load = loader(Sized(sizes), collate_fn=one, **options)
    kept: collections.deque[Any] = collections.deque(maxlen=held)
    for _ in range(epochs):
        for batch in load:
            kept.append(batch)
            del batch
            step()
    values = [sorted(set(each.tolist())) for each in kept]
    return [values, [event[7] for event in machines.current_machine().events if event[2] == Kind.SLOT_MADE]]


def interrupted_while_it_waits(**options: Any) -> list[Any]:
    """Ctrl-C for main alone, as from `kill -INT`, while it waits for a slow batch: nothing is lost."""
    machine, iterator = machines.current_machine(), iter(loader(Keys(5, slow={2: 1.0, 4: 1.0}), **options))

    def press() -> None:
        for _ in range(2):
            sleep(0.7)
            machine.threads[0].signals.append(interrupt)

    worlds.current().thread(press, (), "presses").start()
    found: list[Any] = []
    while len(found) < 12:
        try:
            found.append(next(iterator))
        except KeyboardInterrupt:
            found.append("interrupted")
        except StopIteration:
            break
    return found


def interrupt(frame: Any) -> None:
    raise KeyboardInterrupt


def moving() -> dict[str, Worth]:
    part, torch_way = functools.partial, {"environment": TORCHS_WAY}
    even, mixed = (100,) * 24, (10, 5000, 10, 40_000, 10, 0, 5000, *[10] * 40)
    once = functools.partial(Worth, timed=True)
    return {
        "odd batches": Worth(part(odd_batches)),
        "a pickle without its memory": Worth(without_its_memory),
        "a bare storage": Worth(part(odd_batches, (bare,))),
        "odd batches, torch's way": Worth(part(odd_batches, num_workers=1), options=torch_way),
        "odd batches, pinned": once(part(odd_batches, pin_memory="host")),
        "odd batches, serial, pinned": once(part(odd_batches, num_workers=0, pin_memory="host")),
        "memory while batches are held": once(part(memory_made, even, 6, num_workers=1)),
        "memory for batches of all sizes": once(part(memory_made, mixed)),
        "memory for batches of all sizes, held": once(part(memory_made, mixed, 50, prefetch_factor=1)),
        "memory, large ones": once(part(memory_made, (DIRECT,) * 12, 3)),
        "memory that cannot be mapped": once(part(lost_in_full, Sized(even)), slow=True, without=("mapping",)),
        "interrupted while it waits": Worth(interrupted_while_it_waits, slow=True, timed=True),
        "interrupted while it waits, pinned": Worth(
            part(interrupted_while_it_waits, pin_memory="host"), slow=True, timed=True
        ),
    }
