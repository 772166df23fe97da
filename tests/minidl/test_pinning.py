"""The pin thread and `pin_memory="host"`."""

from __future__ import annotations

import functools
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data._utils.pin_memory import pin_memory as torchs_pin_memory

import minidl
from minidl.pinning import HOST, pin_memory
from tests.minidl import dying
from tests.minidl.dying import keys, no_threads

pytestmark = pytest.mark.timeout(30)


loader_of = functools.partial(dying.loader_of, pin_memory=HOST)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (1000, 100)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16])
def test_a_locked_copy_equals_its_tensor(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = torch.randn(shape).to(dtype)
    copy = pin_memory(tensor, HOST)
    assert torch.equal(copy, tensor) and copy.dtype == dtype and copy.is_contiguous()
    assert copy.data_ptr() != tensor.data_ptr() or not tensor.nbytes
    if tensor.dim() == 2:
        assert torch.equal(pin_memory(tensor.t(), HOST), tensor.t())


class Pinning:
    def pin_memory(self) -> str:
        return "pinned"


class PinningTensor(Pinning, torch.Tensor):
    pass


class PinningText(Pinning, str):
    pass


@pytest.mark.parametrize(
    "batch",
    [torch.ones(2).as_subclass(PinningTensor), PinningText("text")],
    ids=lambda batch: type(batch).__name__,
)
def test_what_is_of_two_kinds_is_pinned_as_by_torch(batch: Any) -> None:
    ours, theirs = pin_memory(batch), torchs_pin_memory(batch)
    assert (type(ours), ours) == (type(theirs), theirs)


class Thread:
    """A batch that pins itself, and notes what it sees of the thread in which it does."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples, self.seen = samples, ()

    def pin_memory(self) -> Thread:
        comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()
        self.seen = threading.current_thread().name, comm, torch.get_num_threads()
        return self


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_may_pin_itself_in_a_thread_that_has_a_name_and_takes_one_core(workers: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        batches = list(minidl.DataLoader([1, 2, 3], 2, num_workers=workers, collate_fn=Thread, pin_memory=HOST))
    finally:
        torch.set_num_threads(before)
    assert [batch.samples for batch in batches] == [[1, 2], [3]]
    main = "MainThread", Path("/proc/self/comm").read_text().strip(), 3
    assert {batch.seen for batch in batches} == {("pin thread", "pt_data_pin", 1) if workers else main}


def test_a_pin_thread_that_cannot_start_is_not_waited_for() -> None:
    """And nobody looks after the workers of an iterator that could not be made."""
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with no_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
            iter(loader_of(keys(2)))
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, handler)


def on_cuda(test: Any) -> Any:
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that CUDA can use")
    return pytest.mark.cuda(skip(test))


@on_cuda
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.timeout(120)
def test_batches_are_pinned_for_a_gpu(num_workers: int) -> None:
    """In a dict, in a namedtuple, on both ways, and the values are what they were."""
    samples = [{"x": torch.tensor([float(key)]), "name": str(key)} for key in range(10)]
    loader = minidl.DataLoader(samples, batch_size=4, num_workers=num_workers, pin_memory=True)
    batches = list(loader)
    assert all(batch["x"].is_pinned() and batch["x"].device.type == "cpu" for batch in batches)
    assert torch.cat([batch["x"] for batch in batches]).flatten().tolist() == [float(key) for key in range(10)]
    assert [name for batch in batches for name in batch["name"]] == [str(key) for key in range(10)]
    sent = batches[0]["x"].to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(sent.cpu(), batches[0]["x"])


@on_cuda
@pytest.mark.timeout(120)
def test_the_pin_thread_works_on_mains_device() -> None:
    """Two epochs with persistent workers; the thread pins for the device that main has chosen."""
    device = torch.cuda.device_count() - 1
    with torch.cuda.device(device):
        loader = minidl.DataLoader(range(8), batch_size=2, num_workers=1, pin_memory=True, persistent_workers=True)
        for _ in range(2):
            assert [batch.tolist() for batch in loader if batch.is_pinned()] == [[0, 1], [2, 3], [4, 5], [6, 7]]
