"""Slots in whole programs: what ends in the middle, what is held, what is large, and what would leak.

Batches are of 40 KB or more, so that each of them lies in a slot. That nothing lent is overwritten shows in their
values: the batch of task k is full of k.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import minidl
from minidl.events import Kind
from tests.minidl.dying import die, open_files, wait_until, workers
from tests.minidl.observing import recorder

pytestmark = pytest.mark.timeout(60)

ROWS = 10_000  # a batch: 40 KB


class Full(minidl.Dataset):
    """The sample of key k is full of k; fetching key `at` ends the worker in the way `how` names."""

    def __init__(self, length: int, how: str = "", at: int = -1) -> None:
        self.length, self.how, self.at = length, how, at

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: int) -> torch.Tensor:
        if key == self.at:
            die(self.how)
        return torch.full((ROWS,), float(key))


def loader_of(length: int = 12, how: str = "", at: int = -1, dataset: Any = None, **options: Any) -> minidl.DataLoader:
    """A batch for each key, from two forked workers."""
    usual = {"batch_size": 1, "num_workers": 2, "multiprocessing_context": "fork", "transport": "slots"}
    return minidl.DataLoader(dataset or Full(length, how, at), **{**usual, **options})


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


def filled_and_killed(samples: list[torch.Tensor]) -> torch.Tensor:
    """Dies when it has filled the slot, which is never sent."""
    batch = minidl.default_collate(samples)
    if batch[0, 0] == 9:
        batch[:] = -7
        die("SIGKILL")
    return batch


@pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
def test_a_worker_killed_in_the_middle_of_filling_a_slot_spoils_nothing(pin_memory: Any) -> None:
    before = resources()
    held: list[torch.Tensor] = []
    with pytest.raises(RuntimeError, match="killed by signal: Killed"):
        for batch in loader_of(20, collate_fn=filled_and_killed, pin_memory=pin_memory):
            held = [*held[-2:], batch]  # some slots are in use, others are used again
    assert values(held) == list(range(int(held[0][0, 0]), int(held[-1][0, 0]) + 1)) and held[-1][0, 0] < 9
    del held, batch
    nothing_left(before)


class Looks(Full):
    """Its samples are a batch of another loader, as this process sees it."""

    def __init__(self, lent: torch.Tensor) -> None:
        super().__init__(4)
        self.lent = lent

    def __getitem__(self, key: int) -> torch.Tensor:
        return self.lent[0].clone()


def test_the_workers_of_a_second_loader_see_what_they_inherited() -> None:
    """It is lent when they are forked. Main then drops it, and the first loader goes on."""
    first = iter(loader_of(40))
    dataset = Looks(next(first))
    second = iter(loader_of())
    del second
    looking = iter(minidl.DataLoader(dataset, 1, num_workers=1, prefetch_factor=1, multiprocessing_context="fork"))
    dataset.lent = torch.empty(0)
    rest = [batch[0, 0].item() for batch in first]
    assert rest == list(range(1, 40))
    assert values(list(looking)) == [0] * 4


def test_a_child_that_was_forked_keeps_what_it_inherited() -> None:
    iterator = iter(loader_of(40))
    lent = [next(iterator) for _ in range(3)]
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.close(writing)
        os.read(reading, 1)  # until main has used all its slots again
        os._exit(0 if values(lent) == [0, 1, 2] else 1)
    del lent
    assert values(list(iterator)) == list(range(3, 40))
    os.write(writing, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(reading)
    os.close(writing)


def test_batches_may_be_dropped_by_another_thread_and_by_the_garbage_collector() -> None:
    granted = []

    def record(kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object) -> None:
        if kind == Kind.SLOT_GRANTED:
            granted.append(value)

    with recorder(record):
        for key, batch in enumerate(loader_of(60)):
            assert values([batch]) == [key]
            kept: list[Any] = [batch]
            if key % 2:
                kept.append(kept)  # only the garbage collector frees it
                gc.collect()
                continue
            thread = threading.Thread(target=kept.clear)
            del batch
            thread.start()
            thread.join()
    assert set(granted) <= set(range(6)), "every batch found a slot"


@pytest.mark.slow
def test_many_iterators_leave_nothing() -> None:
    before = resources()
    for number in range(50):
        iterator = iter(loader_of(6, num_workers=1))
        held = [next(iterator) for _ in range(number % 7)]
        assert values(held) == list(range(number % 7))
        del iterator
    del held
    nothing_left(before)


class Sizes(minidl.Dataset):
    """Batches that grow and shrink from one to the next."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, key: int) -> torch.Tensor:
        return torch.full((10_000 * (1 + key * 7 % 40),), float(key))


def memory_of(processes: list[Any]) -> tuple[int, int]:
    """Mapped pieces, and bytes in use."""
    return sum(mappings(str(each.pid)) for each in processes), sum(each.memory_info().rss for each in processes)


@pytest.mark.slow
def test_a_hundred_epochs_take_no_more_memory_than_the_first() -> None:
    loader = minidl.DataLoader(Sizes(), 1, num_workers=2, persistent_workers=True, transport="slots")
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


class Images(minidl.Dataset):
    """Sample k: an image of `sizes[k]` bytes, a mask of 64 KB, and a label, all full of k."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, key: int) -> Any:
        return torch.full((self.sizes[key] // 4,), float(key)), torch.full((16_000,), float(key)), key


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
    "nothing, many are large": ([40 * MB] * 24, lambda batch: None, 400, 42, {"num_workers": 4}),
}


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("case", KEPT)
def test_memory_goes_with_what_needs_it(case: str) -> None:
    sizes, keep, most, at_the_end, options = KEPT[case]
    before, kept, most_used = shared_memory(), [], 0.0
    iterator = iter(loader_of(dataset=Images(*sizes), **options))
    for batch in iterator:
        kept.append(keep(batch))
        batch[0].sum()  # its pages are in this process, too
        most_used = max(most_used, shared_memory() - before)
    gc.collect()
    used = shared_memory() - before
    assert most_used < most * MB and used < at_the_end * MB, (most_used / MB, used / MB)
    factor = 2 if "collate_fn" in options else 1
    assert bool((batch[0] == factor * (len(sizes) - 1)).all())
    assert all(each is None or bool((each == key).all()) for key, each in enumerate(kept))
    del batch, kept
    assert shared_memory() - before < 1 * MB


# ---- forks and threads in a worker

LOOK = 3  # batches later


class Forks(Full):
    """The worker forks a child in the middle of a batch. It collates, too; and what its parent has, it reads when that
    has gone on to other batches."""

    def __init__(self, folder: Path) -> None:
        super().__init__(16)
        self.folder = folder
        self.asking: dict[int, int] = {}  # pipes to the children

    def collate(self, samples: list[torch.Tensor]) -> torch.Tensor:
        key = int(samples[0][0])
        first = minidl.default_collate(samples)
        reading, writing = os.pipe()
        if not os.fork():
            os.close(writing)
            mine = minidl.default_collate([torch.full((ROWS,), -7.0)])
            os.read(reading, 1)
            right = bool((first == key).all()) and bool((mine == -7).all())
            (self.folder / f"{key}").write_text("right" if right else "wrong")
            os._exit(0)
        os.close(reading)
        self.asking[key] = writing
        if key - LOOK in self.asking:
            os.close(self.asking.pop(key - LOOK))
        return first


def test_a_child_of_a_worker_sees_what_was_there_and_writes_to_nothing(tmp_path: Path) -> None:
    dataset = Forks(tmp_path)
    loader = loader_of(dataset=dataset, collate_fn=dataset.collate, num_workers=1)
    assert [values([batch])[0] for batch in loader] == list(range(16))
    wait_until(lambda: len(list(tmp_path.iterdir())) == 16 and all(each.read_text() for each in tmp_path.iterdir()))
    assert {each.read_text() for each in tmp_path.iterdir()} == {"right"}


class Ahead(Full):
    """A thread of the worker collates the next batch while one is being made, and sent."""

    def collate(self, samples: list[torch.Tensor]) -> torch.Tensor:
        pool = self.__dict__.setdefault("pool", ThreadPoolExecutor(1))
        key = int(samples[0][0])
        ahead = [pool.submit(minidl.default_collate, [torch.full((ROWS,), float(key))]) for _ in range(20)]
        batch = minidl.default_collate(samples)
        return batch if key % 2 else ahead[0].result()


def test_a_thread_of_a_worker_may_collate_at_any_time() -> None:
    dataset = Ahead(400)
    loader = loader_of(dataset=dataset, collate_fn=dataset.collate)
    assert [values([batch])[0] for batch in loader] == list(range(400))


class Caches(Full):
    def collate(self, samples: list[torch.Tensor]) -> torch.Tensor:
        """Keeps its last batches, and looks at them."""
        kept = self.__dict__.setdefault("kept", [])
        assert all(bool((batch == key).all()) for batch, key in kept)
        kept.append((minidl.default_collate(samples), int(samples[0][0])))
        del kept[:-3]
        return kept[-1][0]


def test_what_the_worker_keeps_is_there_in_the_next_epoch() -> None:
    """Pages go back at the end of an epoch, but not those."""
    dataset = Caches(8)
    loader = loader_of(dataset=dataset, collate_fn=dataset.collate, persistent_workers=True)
    for _ in range(3):
        assert [values([batch])[0] for batch in loader] == list(range(8))


def python_after(limit: str, program: str, *how: str) -> subprocess.CompletedProcess[str]:
    """Run a program in Python, once bash has set a limit."""
    command = [*how, "bash", "-c", f"{limit} && exec {sys.executable} -W ignore -"]
    program = textwrap.dedent(program)
    return subprocess.run(command, input=program, capture_output=True, text=True, timeout=50, check=False)


# A program that holds all its batches.
HOLDING = """
    import torch, minidl
    from tests.minidl.test_slots import {dataset} as Dataset
    from torch.utils.data import DataLoader as Torchs
    held = list({loader}(Dataset({length}), 1, num_workers=2))
    assert all(batch.flatten()[0] == key for key, batch in enumerate(held))
    print(len(held), held[0].nbytes)
"""


class Small(Full):
    def __getitem__(self, key: int) -> torch.Tensor:
        return torch.full((10,), float(key))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("dataset", ["Small", "Full"])
def test_1000_batches_are_held_with_256_descriptors(dataset: str) -> None:
    program = HOLDING.format(dataset=dataset, loader="minidl.DataLoader", length=1000)
    ran = python_after("ulimit -n 256", program)
    assert ran.stdout.split() == ["1000", "40" if dataset == "Small" else "40000"], ran.stderr
    torchs = python_after("ulimit -n 256", program.replace("minidl.DataLoader", "Torchs"))
    assert torchs.returncode and "Too many open files" in torchs.stderr


class Huge(Full):
    def __getitem__(self, key: int) -> torch.Tensor:
        return torch.full((50_000_000,), float(key))


SMALL_SHM = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
HUGE = """
    import torch, minidl
    from tests.minidl.test_slots import Huge
    from torch.utils.data import DataLoader as Torchs
    for key, batch in enumerate({loader}(Huge(5), 1, num_workers=1, prefetch_factor=1)):
        assert batch[0, 0] == batch[0, -1] == key
        print(batch.nbytes)
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_200_mb_batches_pass_where_dev_shm_has_64_mb() -> None:
    """As in a container. A mount of its own, which no other process sees."""
    alone = "unshare", "-m"
    if python_after(SMALL_SHM, "", *alone).returncode:
        pytest.skip("mounting a /dev/shm of 64 MB needs rights that this process lacks")
    ran = python_after(SMALL_SHM, HUGE.format(loader="minidl.DataLoader"), *alone)
    assert ran.stdout.split() == ["200000000"] * 5, ran.stderr
    torchs = python_after(SMALL_SHM, HUGE.format(loader="Torchs"), *alone)
    assert torchs.returncode
    assert "shared memory" in torchs.stderr or "Bus error" in torchs.stderr
