"""The transport, without a process: a worker's Packer and main's Unpacker, with a real pipe between them that carries
real memory."""

from __future__ import annotations

import errno
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from torch._subclasses import FakeTensorMode

from minidl import events, transport
from minidl.messages import Result
from minidl.transport import DIRECT, NO_SLOT, Packer, Unpacker, filling, memory, reserve
from minidl.transport.pickling import Pickled
from minidl.world.real import RealWorld
from tests.minidl.batches import BATCHES, described
from tests.minidl.dying import in_a_fork

WORLD = RealWorld()
LARGE = 1 << 15  # floats: too many bytes to follow a pickle
SOME = 1 << 12  # floats that need memory, too


@pytest.fixture(autouse=True)
def no_room() -> Iterator[None]:
    """A worker keeps room for the batch that it makes. This process will be none."""
    yield
    filling._current = None


class Line:
    """Both sides, and what is between them."""

    def __init__(self, most: int = 3) -> None:
        self.reader, self.writer = WORLD.pipe()
        self.packer, self.unpacker = Packer(WORLD, 0), Unpacker(WORLD, 0, most)
        self.task_id = -1
        self.made = 0  # memories that were sent

    def begin(self) -> filling.Room:
        """Main grants a slot, and the worker begins a batch in it."""
        self.task_id += 1
        return self.packer.room(*self.unpacker.grant(1, self.task_id))

    def finish(self, room: filling.Room, batch: Any) -> tuple[bytes, Any]:
        """The worker sends it. Returns what main gets."""
        pieces, memory = self.packer.pack(Result(1, self.task_id, 0, batch, room))
        if memory is not None:
            self.made += 1
            self.writer.write(memoryview(b"x"), memory)
            self.reader.read()
            memory = self.reader.memory()
        return b"".join(pieces), memory

    def send(self, batch: Any) -> Any:
        """The batch, as main has it."""
        return self.unpacker.unpack(*self.finish(self.begin(), batch)).data

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


@pytest.fixture
def line():
    line = Line()
    yield line
    line.close()


def large(value: float) -> torch.Tensor:
    return torch.full((LARGE,), value)


def test_a_batch_arrives_in_memory_that_the_worker_has_too(line):
    sent = {"x": large(1.0), "y": [torch.arange(3)], "name": "a"}
    room = line.begin()
    got = line.unpacker.unpack(*line.finish(room, sent)).data
    assert torch.equal(got["x"], sent["x"]) and torch.equal(got["y"][0], sent["y"][0]) and got["name"] == "a"
    room.memory.bytes[:4] = 0
    assert got["x"][0] == 0, "main has a copy"
    assert not got["x"].is_shared()


# What may be left of a batch. (Trap: a finalizer on a tensor fires while `.data`, `.numpy()` or a view is alive.)
PARTS: dict[str, Callable[[Any], Any]] = {
    "the batch": lambda batch: batch["x"],
    "numpy": lambda batch: batch["x"].numpy(),
    "data": lambda batch: batch["x"].data,
    "a view": lambda batch: batch["x"][5:9],
    "its storage": lambda batch: batch["x"].untyped_storage(),
    "its memory": lambda batch: memoryview(batch["x"].numpy()),
    "some of an array": lambda batch: batch["a"][::7],
    "an array's tensor": lambda batch: torch.from_numpy(batch["a"]),
    "other bits": lambda batch: batch["x"].view(torch.uint8),
    "through dlpack": lambda batch: torch.utils.dlpack.from_dlpack(batch["x"]),
    "a small one": lambda batch: batch["small"],
}


def bytes_of(part: Any) -> bytes:
    return bytes(memoryview(np.asarray(torch.as_tensor(part).clone())))


class AnyOrder(RuleBasedStateMachine):
    """A process that may look at memory sees what it saw first: main at what it holds, the worker at what its
    collate_fn has kept, and a child that main has forked at all that was lent by then."""

    def __init__(self) -> None:
        super().__init__()
        self.line = Line()
        self.held: list[tuple[Any, bytes]] = []  # by main
        self.kept: list[tuple[Any, bytes]] = []  # by the worker
        self.children: list[tuple[Any, Any]] = []
        self.number = 0

    @rule(
        size=st.sampled_from([1, SOME, SOME, 2 * SOME, 5 * SOME]),
        part=st.sampled_from([None, *PARTS]),
        is_collated=st.booleans(),
        is_kept=st.booleans(),
    )
    def send(self, size: int, part: str | None, is_collated: bool, is_kept: bool) -> None:
        """With `size` 1 it needs no slot, though it was granted one."""
        self.number += 1
        room = self.line.begin()
        piece = reserve(4 * size, torch.device("cpu")) if is_collated else None
        x = torch.empty(0).set_(piece) if piece is not None else torch.empty(size)
        sent = {"x": x.fill_(self.number), "a": np.full(size, self.number), "small": torch.full((9,), self.number)}
        got = self.line.unpacker.unpack(*self.line.finish(room, sent)).data
        assert all(bool((each == self.number).all()) for each in got.values())
        if is_kept:
            self.kept.append((x, bytes_of(x)))
        if part is not None:
            self.held.append((PARTS[part](got), bytes_of(PARTS[part](got))))

    @rule(of=st.sampled_from(["held", "kept"]), which=st.integers(0, 5))
    def let_go(self, of: str, which: int) -> None:
        del getattr(self, of)[which : which + 1]

    @rule()
    def fork(self) -> None:
        """(For the child's sake only the pages are looked at: it has no part in main's counting.)"""
        self.line.unpacker.before_fork()
        memories = [self.line.unpacker._memories[slot].bytes[: memory.LOOKED_AT] for slot in self.line.unpacker._lent]
        self.children += [(lent, lent.copy()) for lent in memories]

    @rule(tasks=st.integers(0, 3))
    def end_a_stream(self, tasks: int) -> None:
        """Its worker skips tasks: it does not see that a slot which they were granted needs new memory."""
        for _ in range(tasks):
            self.line.unpacker.grant(1, 50)
        self.line.unpacker.reclaim()

    @rule()
    def end_an_epoch(self) -> None:
        self.line.unpacker.rest()

    @invariant()
    def nothing_has_changed(self) -> None:
        assert all(bytes_of(part) == before for part, before in [*self.held, *self.kept])
        assert all((now == before).all() for now, before in self.children)

    def teardown(self) -> None:
        """What nobody holds any more is granted again."""
        self.held.clear()
        unpacker = self.line.unpacker
        granted = {unpacker.grant(1, task_id)[0] for task_id in range(unpacker._most)}
        assert granted == set(range(unpacker._most))
        self.line.close()


test_in_any_order = pytest.mark.slow(pytest.mark.timeout(120)(AnyOrder.TestCase))
AnyOrder.TestCase.settings = settings(max_examples=20, stateful_step_count=20)


def test_a_batch_may_go_in_any_thread_and_by_the_garbage_collector(line):
    held = [line.send(large(1.0))]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    cycle: list[Any] = [line.send(large(2.0))]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert line.send(large(3.0))[0] == 3 and line.made == 1


def test_collate_makes_its_tensors_where_main_will_find_them(line):
    room = line.begin()
    made = torch.empty(0).set_(reserve(4 * LARGE, torch.device("cpu")))
    made.fill_(1.0)
    assert made.data_ptr() == memory.address_of(room.memory.bytes)
    got = line.unpacker.unpack(*line.finish(room, made)).data
    made.fill_(2.0)
    assert got[0] == 2, "it was copied"
    assert reserve(4 * LARGE, torch.device("cpu")) is None, "a room that is closed gives no more"


@pytest.mark.parametrize("who", ["another thread", "pickling", "a child"])
def test_only_the_thread_that_makes_a_batch_has_its_memory(line, who):
    """Trap: a thread collates ahead; the child that a dataset forks collates. Each would write to another's batch."""
    room, reserved = line.begin(), []

    def take() -> None:
        reserved.append(reserve(2 * DIRECT, torch.device("cpu")))

    class Future:
        def __reduce__(self) -> Any:
            take()
            return list, ()

    if who == "another thread":
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
    elif who == "pickling":
        line.finish(room, Future())
    elif pid := os.fork():
        reserved.append(os.waitpid(pid, 0)[1] or None)
    else:
        take()
        os._exit(reserved != [None])
    assert reserved == [None]


def test_a_batch_of_small_tensors_needs_no_memory(line):
    """It follows its pickle: a program that keeps many of them keeps no pages; a system maps only a certain number."""
    room = line.begin()
    assert reserve(DIRECT - 1, torch.device("cpu")) is None, "it is collated anywhere"
    assert line.unpacker.unpack(*line.finish(room, torch.ones(2))).data.tolist() == [1, 1]
    assert line.made == 0


def test_no_tensor_without_memory_is_written_to(line):
    sent = line.finish(line.begin(), torch.ones(2))
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(RuntimeError, match="FakeTensorMode"):
        line.unpacker.unpack(*sent)


def test_a_batch_that_just_fits_stays_in_its_slot():
    """The first one was half as large, say, and a slot is made twice as large as what it is made for."""
    made = WORLD.memory(8 * DIRECT)
    assert filling.Room(Packer(WORLD, 0), 0, made).reserve(8 * DIRECT - memory.ALIGNED) is not None
    assert filling.Room(Packer(WORLD, 0), 0, made).with_bytes(8 * DIRECT - memory.ALIGNED) is made


def test_only_what_is_on_the_cpu_is_collated_in_a_slot(line):
    line.begin()
    assert reserve(2 * DIRECT, torch.device("meta")).device.type == "meta"


def test_a_batch_that_does_not_fit_gets_a_larger_slot(line):
    for rows in (1, 2, 8, 3, 40):
        room = line.begin()
        pieces = [reserve(4 * LARGE, torch.device("cpu")) for _ in range(rows)]
        sent = [
            large(row) if piece is None else torch.empty(0).set_(piece).fill_(row) for row, piece in enumerate(pieces)
        ]
        got = line.unpacker.unpack(*line.finish(room, sent)).data
        assert [tensor[0].item() for tensor in got] == list(range(rows))
        assert all((tensor == tensor[0]).all() for tensor in got)
        del got, sent, pieces, room
    assert 2 <= line.made <= 4


def test_a_piece_of_memory_that_cannot_be_had_is_not_taken(line, monkeypatch):
    def full(nbytes: int) -> Any:
        raise OSError(errno.ENOSPC, "no memory is left")

    monkeypatch.setattr(line.packer, "make", full)
    room = filling.Room(line.packer, 0)
    with pytest.raises(OSError, match="no memory"):
        room.reserve(2 * DIRECT)
    assert room.close() == []


def test_memory_that_was_lost_on_the_way_is_not_taken_for_the_slots_old_one(line):
    """The system drops a descriptor if the receiver has too many files open."""
    line.send(large(1.0))
    room = line.begin()
    data, new = line.finish(room, torch.zeros(10 * LARGE))
    assert new is not None
    with pytest.raises(OSError, match="could not be mapped"):
        line.unpacker.unpack(data, None)


def test_a_slot_that_is_given_back_is_not_granted_to_two_tasks(line):
    """Main may grant it at once, while the pin thread, which has given it back, goes on."""
    granted: list[int] = []

    def main_is_quick(frame: Any, event: str, called: Any) -> None:
        if event == "c_return" and called == line.unpacker._free.append:
            granted.append(line.unpacker.grant(1, 50)[0])

    data, memory = line.finish(line.begin(), torch.ones(2))
    sys.setprofile(main_is_quick)
    try:
        line.unpacker.unpack(data, memory)
    finally:
        sys.setprofile(None)
    granted += [line.unpacker.grant(1, 51)[0], line.unpacker.grant(1, 52)[0]]
    assert granted == [0, 1, 2]


def test_what_is_lent_at_a_fork_is_retired(line):
    """A batch in memory of its own lies in no slot. One that is unpacked at the moment of the fork is not lent yet."""

    def record(kind: int, *_: Any) -> None:
        if kind == events.SLOT_LENT:
            in_a_fork(gc.isenabled)

    previous = events.install(record)
    try:
        kept = [line.send(large(1.0))]
        assert not retired(line)
        kept += [line.send(large(value)) for value in (2.0, 3.0)]
    finally:
        events.install(previous)
    kept.append(line.send(large(4.0)))
    assert retired(line) == [0, 1]
    in_a_fork(gc.isenabled)
    assert retired(line) == [0, 1, 2] and [batch[0] for batch in kept] == [1, 2, 3, 4]


def retired(line: Any) -> list[int]:
    return sorted(loan.slot for loan in line.unpacker._lent.values() if loan.retired)


def test_there_are_no_more_slots_than_the_header_has_numbers_for():
    unpacker = Unpacker(WORLD, 0, 1 << 20)
    slots = [unpacker.grant(1, task_id)[0] for task_id in range((1 << 15) + 2)]
    assert slots == [*range(1 << 15), NO_SLOT, NO_SLOT]
    assert memory.HEADER.unpack(memory.HEADER.pack(max(slots), False, 0, 0, 0))[0] == max(slots)


def test_what_cannot_be_had_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="transport option should be"):
        transport.transport_of("slot", WORLD)
    monkeypatch.setenv(transport.VARIABLE, "slot")
    with pytest.raises(ValueError, match=f"{transport.VARIABLE} should be .*, but got 'slot'"):
        transport.transport_of(None, WORLD)
    monkeypatch.delenv(transport.VARIABLE)
    assert transport.transport_of(None, WORLD) == "slots"
    monkeypatch.delattr(os, "memfd_create")
    assert transport.transport_of(None, WORLD) == "torch"
    with pytest.raises(RuntimeError, match="which this system lacks"):
        transport.transport_of("slots", WORLD)


def test_descriptors_are_not_kept(line):
    before = set(os.listdir("/proc/self/fd"))
    kept = [line.send(large(value)) for value in range(50)]
    assert set(os.listdir("/proc/self/fd")) == before and len(kept) == 50


def torchs(batch: Any) -> Any:
    """The batch, as torch's transport brings it."""
    return ForkingPickler.loads(ForkingPickler.dumps(batch))


class Kind(torch.Tensor):
    pass


@pytest.mark.parametrize("beside", [0, LARGE])
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_data_arrives_as_by_torchs_transport(line, name, beside):
    """`beside` makes the batch too large to go without a slot."""
    batch = BATCHES[name]()
    got, _ = line.send((batch, torch.ones(beside)))
    assert described(got) == described(torchs(batch))


def test_whatever_lies_in_one_storage_stays_so(line):
    """Parameters, subclasses and the like are taken apart by torch's reducers, and still lie where they lay."""
    base = torch.arange(24.0)
    turned = torch.view_as_complex(base.view(12, 2)).conj()
    sent = [
        torch.nn.Parameter(base),
        base.as_subclass(Kind),
        turned,
        base.untyped_storage(),
        base._typed_storage(),
        base[2:4],
    ]
    for beside in 0, LARGE:
        parameter, subclass, conjugate, untyped, typed, view = line.send([*sent, torch.ones(beside)])[:-1]
        parameter.data[2] = 99
        assert type(subclass) is Kind and parameter.requires_grad
        assert subclass[2] == conjugate[1].real == typed[2] == view[0] == 99
        assert bytes(untyped[8:12]) == np.float32(99).tobytes()


def test_what_lies_where_a_small_tensor_lies_stays_there(line):
    """It was pickled with its bytes, before the others came."""
    base = torch.arange(24.0)
    tensor, storage, parameter, part = line.send([base, base.untyped_storage(), torch.nn.Parameter(base), base[2:4]])
    tensor[2] = 99
    assert bytes(storage[8:12]) == np.float32(99).tobytes() and parameter[2] == part[0] == 99 and line.made == 0
    part, tensor = line.send([base[2:4], base])
    tensor[2] = 99
    assert part[0] == 99, "the other way round, too"


def test_what_torchs_reducers_take_apart_leaves_no_descriptor(line):
    sent = [torch.nn.Parameter(torch.ones(9)), torch.eye(4).to_sparse(), torch.ones(3).as_subclass(Kind)]
    line.send(sent)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(20):
        line.send([*sent, torch.arange(1000)[5:7]])
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("shape", [(6,), (2, 3), (6, 1), (1, 6, 1), (0, 3)])
def test_a_tensor_that_fills_its_storage_is_built_the_quick_way(shape):
    """A batch of 50 features takes main half as long again to unpack, if each is taken for a part of its storage."""
    assert b"small" in Pickled(torch.ones(shape), WORLD.reducers, WORLD.lent).stream.getvalue()


def test_a_small_view_does_not_bring_its_whole_storage(line):
    base = torch.arange(float(100 * LARGE))
    sent = {"a": base[1000:1010], "b": base[1005:1020], "c": base.view(torch.int64)[510:512]}
    got = line.send(sent)
    assert all(torch.equal(got[key], sent[key]) for key in sent)
    assert got["a"].untyped_storage().nbytes() < 1000
    got["a"][5] = -1
    assert got["b"][0] == -1, "they lie in one storage, as before"


def test_a_view_brings_its_whole_storage_from_the_half_of_it_on(line):
    base = torch.arange(32.0)
    got = [line.send(base[:number]).untyped_storage().nbytes() for number in (15, 16, 17)]
    assert got == [60, 128, 128]


def test_a_view_of_nothing_brings_next_to_nothing(line):
    for view in torch.ones(200, 10)[:5, :0], torch.ones(2000)[1000:1000]:
        got = line.send(view)
        assert got.shape == view.shape and got.untyped_storage().nbytes() < 64, "it may begin a little before"


def test_tensors_begin_at_multiples_of_64_bytes(line):
    for beside in 0, LARGE:
        batch = line.send(
            [torch.ones(n) for n in range(1, 20)] + [np.ones(n) for n in range(1, 20)] + [torch.ones(beside)]
        )
        addresses = [x.data_ptr() if isinstance(x, torch.Tensor) else memory.address_of(x) for x in batch]
        assert not any(address % 64 for address in addresses)
