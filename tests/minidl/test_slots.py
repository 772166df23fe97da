"""Slots in whole programs: what ends in the middle, what is held, what is large, and what would leak.

Batches are of 40 KB or more, so that each of them lies in a slot. That nothing lent is overwritten shows in their
values: the batch of task k is full of k.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import minidl
from tests.minidl.dying import open_files, wait_until, workers
from tests.minidl.mains import Mains
from tests.samples import Samples

pytestmark = pytest.mark.timeout(60)

ROWS = 10_000  # a batch: 40 KB


def full(rows: int, key: int) -> torch.Tensor:
    return torch.full((rows,), float(key))


def uneven(key: int) -> torch.Tensor:
    """They grow and shrink from one to the next."""
    return full(ROWS * (1 + key * 7 % 40), key)


def of_full(length: int, rows: int = ROWS) -> Samples:
    """Sample k consists of numbers k."""
    return Samples(length, functools.partial(full, rows))


def loader_of(length: int = 12, dataset: Any = None, **options: Any) -> minidl.DataLoader:
    """A batch for each key, from two forked workers."""
    usual = {"batch_size": 1, "num_workers": 2, "multiprocessing_context": "fork", "transport": "slots"}
    return minidl.DataLoader(dataset or of_full(length), **{**usual, **options})


def values(held: list[torch.Tensor]) -> list[float]:
    """What each batch is full of: -1 if it is not."""
    return [batch[0, 0].item() if bool((batch == batch[0, 0]).all()) else -1 for batch in held]


def mappings(process: str = "self") -> int:
    """How many pieces of memory without a name it has mapped."""
    return Path(f"/proc/{process}/maps").read_text().count("memfd:minidl")


def resources() -> tuple[int, int]:
    """Pieces of memory, and files, that this process has: other tests' too."""
    gc.collect()
    return mappings(), open_files()


def nothing_left(before: tuple[int, int]) -> None:
    gc.collect()
    wait_until(lambda: not workers())
    assert resources() == before


def shared_in_worker(samples: list[Any]) -> Any:
    batch = torch.utils.data.default_collate(samples)
    return batch, batch.is_shared()


@pytest.mark.parametrize(("transport", "shared"), [("slots", False), ("torch", True)])
def test_torchs_default_collate_in_a_collate_fn_makes_its_batch_in_the_slot(transport: str, shared: bool) -> None:
    for batch, was_shared in loader_of(collate_fn=shared_in_worker, transport=transport):
        assert was_shared is shared and batch.shape == (1, ROWS)


class Stop(Exception):
    pass


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def stop() -> None:
    raise Stop


@pytest.mark.parametrize("persistent", [False, True], ids=["one-epoch", "persistent"])
@pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
@pytest.mark.parametrize("leave", [lambda: None, stop, interrupt], ids=["break", "exception", "Ctrl-C"])
def test_what_is_held_outlives_a_loader_that_is_left(
    leave: Callable[[], None], pin_memory: Any, persistent: bool
) -> None:
    before = resources()
    held = []
    loader = loader_of(pin_memory=pin_memory, persistent_workers=persistent)
    try:
        for batch in loader:
            held.append(batch[0] if isinstance(batch, list) else batch)
            if len(held) == 7:
                leave()
                break
    except (Stop, KeyboardInterrupt):
        pass
    del loader
    gc.collect()  # the exception holds its frame
    wait_until(lambda: not workers())
    assert values(held) == list(range(7))
    del held, batch
    nothing_left(before)


def memory_of(processes: list[Any]) -> tuple[int, int]:
    """Mapped pieces, and bytes in use."""
    return sum(mappings(str(each.pid)) for each in processes), sum(each.memory_info().rss for each in processes)


def child_that_looks_at(held: list[torch.Tensor]) -> Callable[[], bool]:
    """Fork a child. What is returned lets it look, and says whether it sees what was there when it was forked."""
    (ready, go), (told, tell), expected = os.pipe(), os.pipe(), values(held)
    if os.fork() == 0:
        os.read(ready, 1)
        os.write(tell, b"=" if values(held) == expected else b"!")
        os._exit(0)
    return lambda: (os.write(go, b"."), os.read(told, 1))[1] == b"="


def test_a_fork_after_the_loader_is_gone_still_has_its_batches() -> None:
    held = list(loader_of())
    looks = child_that_looks_at(held)
    held.clear()
    assert looks()
    os.wait()


def test_a_child_of_a_worker_still_has_what_the_worker_and_main_have_dropped() -> None:
    (told, tell), (ready, go) = os.pipe(), os.pipe()
    made: list[torch.Tensor] = []

    def collate(samples: list[torch.Tensor]) -> torch.Tensor:
        batch = minidl.default_collate(samples)
        made.append(batch)
        if len(made) == 8:
            looks = child_that_looks_at(made)
            made.clear()
            if os.fork() == 0:
                os.read(ready, 1)
                os._exit(os.write(tell, b"=" if looks() else b"!") - 1)
        return batch

    held = list(loader_of(collate_fn=collate, num_workers=1))
    held.clear()
    os.write(go, b".")
    assert os.read(told, 1) == b"="


@pytest.mark.parametrize("twice", [torch.Tensor.numpy, lambda x: torch.from_numpy(x.numpy()), torch.from_dlpack])
def test_two_leaves_upon_one_memory_are_independent(twice: Callable[[Any], Any]) -> None:
    def collate(samples: list[torch.Tensor]) -> list[Any]:
        batch = minidl.default_collate(samples)
        return [batch, twice(batch)]

    held = []
    for batch, other in loader_of(collate_fn=collate):
        batch.zero_()
        held.append(torch.as_tensor(other))
    assert values(held) == list(range(12))


@pytest.mark.slow
def test_a_hundred_epochs_take_no_more_memory_than_the_first() -> None:
    loader = minidl.DataLoader(Samples(40, uneven), 1, num_workers=2, persistent_workers=True, transport="slots")
    processes, seen = [], []
    for epoch in range(100):
        for key, batch in enumerate(loader):
            assert batch[0, 0] == batch[0, -1] == key and batch.shape[1] == 10_000 * (1 + key * 7 % 40)
        if epoch in (20, 99):
            processes = [psutil.Process(), *(psutil.Process(each.pid) for each in workers())]
            seen.append(memory_of(processes))
    del loader, batch
    (_, used), (mapped, used_at_the_end) = seen
    assert mapped <= 2 * 2 * 6  # in main and in a worker, of two workers, six slots at most
    assert used_at_the_end - used < 6 << 20, "6 MB"


# ---- memory is kept no longer than torch keeps it

MB = 1 << 20


def shared_memory() -> float:
    """Of this process and its workers (bytes), each page counted once."""
    found = 0.0
    for process in (psutil.Process(), *workers()):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            found += float(line.split()[1]) * 1024 if line.startswith("Pss_Shmem:") else 0
    return found


def image(sizes: list[int], key: int) -> Any:
    """Sample k: an image of `sizes[k]` bytes, a mask of 64 KB, and a label, all full of k."""
    return full(sizes[key] // 4, key), full(16_000, key), key


def kept_in_part(samples: list[Any], kept: list[Any] = []) -> Any:  # noqa: B006
    """The worker keeps a mask of each batch: not all that was made beside it."""
    batch = minidl.default_collate(samples)
    kept.append(batch[1])
    return batch


def doubled(samples: list[Any]) -> Any:
    """What it collates is not what it returns."""
    image, mask, label = minidl.default_collate(samples)
    return image * 2, mask, label


# What is loaded, what the program keeps of each batch, how many MB it may have at most, and at the end, when it has the
# last batch and what it kept. torch has up to prefetch_factor * num_workers + 2 batches at most.
KEPT: dict[str, tuple[list[int], Callable[[Any], Any], float, float, dict[str, Any]]] = {
    "labels": ([8 * MB] * 24, lambda batch: batch[2], 50, 10, {}),
    "masks": ([8 * MB] * 24, lambda batch: batch[1], 66, 12, {}),
    "nothing, batches shrink": ([40 * MB] * 8 + [4 * MB] * 40, lambda batch: None, 240, 5, {}),
    "nothing, batches shrink a little": ([16 * MB] * 8 + [4 * MB] * 60, lambda batch: None, 100, 5, {}),
    "nothing, workers idle": ([8 * MB] * 12, lambda batch: None, 50, 10, {"persistent_workers": True}),
    "nothing, another is sent": ([8 * MB] * 12, lambda batch: None, 50, 10, {"collate_fn": doubled}),
    "nothing, its worker a part": ([8 * MB] * 24, lambda batch: None, 66, 56, {"collate_fn": kept_in_part}),
    "nothing, many are large": ([40 * MB] * 24, lambda batch: None, 400, 42, {"num_workers": 4}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", KEPT)
def test_memory_goes_with_what_needs_it(case: str) -> None:
    sizes, keep, most, at_the_end, options = KEPT[case]
    before, kept, most_used = shared_memory(), [], 0.0
    iterator = iter(loader_of(dataset=Samples(len(sizes), functools.partial(image, sizes)), **options))
    for batch in iterator:
        kept.append(keep(batch))
        batch[0].sum()  # its pages are in this process, too
        most_used = max(most_used, shared_memory() - before)
    gc.collect()
    used = shared_memory() - before
    assert most_used < most * MB and used < at_the_end * MB, (most_used / MB, used / MB)
    factor = 2 if options.get("collate_fn") is doubled else 1
    assert bool((batch[0] == factor * (len(sizes) - 1)).all())
    assert all(each is None or bool((each == key).all()) for key, each in enumerate(kept))
    del batch, kept
    assert shared_memory() - before < (at_the_end if "part" in case else 1) * MB  # slots that a worker looked at stay


# ---- limits of the system that torch runs into


CANNOT = 77  # the exit code of a process that lacks the rights


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


def small_shm() -> None:
    """As in a container: of its own, which no other process sees."""
    private, of_64_mb = "mount --make-rprivate /", "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) or os.system(f"({private} && {of_64_mb}) 2>/dev/null"):
        sys.exit(CANNOT)


CLONE_NEWNS = 0x20000
# A program that keeps its last batches.
KEEPING = """
    import collections, torch.utils.data
    from tests.minidl.test_slots import few_files, of_full, small_shm
    {limit}()
    held = collections.deque(maxlen={held})
    for key, batch in enumerate({loader}(of_full({length}, {rows}), 1, num_workers=1, prefetch_factor=1)):
        held.append((key, batch))
        assert batch[0, 0] == batch[0, -1] == key
        print(batch.nbytes)
    assert all(batch[0, 0] == batch[0, -1] == key for key, batch in held)
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("limit", "length", "rows", "held", "torchs_error"),
    [
        (few_files, 400, 10, 400, "Too many open files"),
        (few_files, 400, ROWS, 400, "Too many open files"),
        (small_shm, 5, 20_000_000, 1, "shared memory|Bus error"),
    ],
    ids=["400 small batches, 256 files", "400 batches, 256 files", "80 MB, and 64 MB in /dev/shm"],
)
def test_batches_pass_where_torchs_do_not(
    limit: Any, length: int, rows: int, held: int, torchs_error: str, mains: Mains, tmp_path: Path
) -> None:
    program = functools.partial(KEEPING.format, limit=limit.__name__, length=length, rows=rows, held=held)
    mains.start(program(loader="minidl.DataLoader"), tmp_path)
    code, errors = mains.end(50)
    if code == CANNOT:
        pytest.skip("mounting a /dev/shm of 64 MB needs rights that this process lacks")
    assert (tmp_path / "stdout").read_text().split() == [str(4 * rows)] * length, errors
    mains.start(program(loader="torch.utils.data.DataLoader"), tmp_path)
    code, errors = mains.end(50)
    assert code and re.search(torchs_error, errors)


UNDER_WAY = """
    import ctypes, minidl, time
    from tests.minidl.test_slots import ROWS, few_files, of_full
    few_files()
    ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())  # root has no such limit
    for key, batch in enumerate(minidl.DataLoader(of_full(500, ROWS), 1, num_workers=2, prefetch_factor=200)):
        time.sleep(0 if key else 1)  # the workers send what they can
        assert batch[0, 0] == batch[0, -1] == key
"""


@pytest.mark.slow
def test_more_memory_is_on_its_way_than_files_may_be_open(mains: Mains, tmp_path: Path) -> None:
    mains.start(UNDER_WAY, tmp_path)
    assert mains.end(50) == (0, "")
