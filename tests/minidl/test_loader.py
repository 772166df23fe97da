"""DataLoader from outside: argument checks, lengths, warnings, what others reach into, several iterators, subclasses.

Where torch does the same, both run and are compared.
"""

from __future__ import annotations

import copy
import functools
import itertools
import multiprocessing
import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

import minidl
from tests.ids import plain
from tests.minidl.observing import alike, attempt, comparable, in_both, neutral, seed_all, steps
from tests.minidl.programs import TORCH, ShortMinidlStream, Squares, TorchStream, keep, noise
from tests.samples import Samples

pytestmark = pytest.mark.timeout(30)

BOTH = pytest.mark.parametrize("loaders", [minidl, TORCH], ids=["minidl", "torch"])
MORE_THAN_CORES = len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else 1 + (os.cpu_count() or 1)
FORK = multiprocessing.get_context("fork")


# ---- arguments

AXES: dict[str, list[Any]] = {
    "num_workers": [-1, 0, 1],
    "timeout": [-1, 0],
    "prefetch_factor": [None, -1, 3],
    "persistent_workers": [False, True],
    "multiprocessing_context": [None, "fork", "hurry", 7],
    "batch_size": [1, None, 0, 4],
    "shuffle": [None, False, True],
    "sampler": [None, [0, 1]],
    "batch_sampler": [None, [[0], [1]]],
    "drop_last": [False, True],
}


@pytest.mark.parametrize("dataset", [[1, 2, 3], TorchStream(3)], ids=["map", "iterable"])
def test_every_combination_of_arguments_is_judged_as_by_torch(dataset: Any) -> None:
    """Some 14,000, most of them wrong in several ways: the same error wins, with the same words."""
    verdicts = set()
    for values in itertools.product(*AXES.values()):
        arguments = dict(zip(AXES, values, strict=True))

        def run(package: ModuleType, arguments: dict[str, Any] = arguments) -> Any:
            loader = package.DataLoader(dataset, **arguments)
            return loader.batch_size, loader.drop_last, loader.prefetch_factor, attempt(lambda: len(loader))

        verdicts.add(in_both(run)[:3])
    assert len(verdicts) > 12


ODD: dict[str, list[Any]] = {
    "num_workers": ["2", None],
    "timeout": ["1"],
    "batch_size": ["4", True, 2.0],
    "drop_last": ["yes", None],
    "multiprocessing_context": [FORK],
    "sampler": [3],
    "batch_sampler": [3],
    "shuffle": ["yes"],
    "collate_fn": [3],
    "no_such_option": [1],
}
ODD_WITH_A_WORKER = {"prefetch_factor": ["2"], "multiprocessing_context": ["", b"fork", FORK, torch.multiprocessing]}
ODD_ARGUMENTS: list[dict[str, Any]] = [
    *({name: value} for name, values in ODD.items() for value in values),
    *({name: value, "num_workers": 1} for name, values in ODD_WITH_A_WORKER.items() for value in values),
    {"generator": 3, "shuffle": True},
]


@pytest.mark.parametrize("arguments", ODD_ARGUMENTS, ids=plain)
def test_arguments_of_other_types_are_judged_as_by_torch(arguments: dict[str, Any]) -> None:
    """At construction, or at the latest when iterated."""

    def run(package: ModuleType) -> Any:
        seed_all()
        loader = package.DataLoader([1, 2, 3], **arguments)
        return attempt(lambda: len(loader)), comparable(list(loader)) if loader.num_workers == 0 else None

    in_both(run)


def test_arguments_have_torchs_positions() -> None:
    in_both(lambda package: package.DataLoader([1], 1, None, None, None, 0, None, False, False, 0, None, None, None, 2))
    loader = minidl.DataLoader([1, 2], 2, True, None, None, 1, keep, False, True, 5, print, "fork", torch.Generator())
    assert (loader.batch_size, loader.num_workers, loader.collate_fn) == (2, 1, keep)
    assert (loader.drop_last, loader.timeout, loader.worker_init_fn) == (True, 5, print)


NAMES = ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
OTHERS = ["num_workers", "collate_fn", "timeout", "worker_init_fn", "prefetch_factor", "generator"]
OTHERS += ["in_order", "pin_memory"]


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
@alike
def test_only_attributes_without_effect_on_the_sampler_can_be_set(package: ModuleType, name: str) -> Any:
    class Own(package.DataLoader):
        pass

    loader = Own([1, 2, 3])
    result = attempt(lambda: setattr(loader, name, None))
    assert result[0] == ("error" if name in NAMES else "value")
    return result, name in NAMES or getattr(loader, name)


@pytest.mark.parametrize("value", ["fork", "hurry", 7, None, FORK], ids=["fork", "hurry", "7", "None", "a context"])
@pytest.mark.parametrize("workers", [0, 1])
@alike
def test_the_context_can_be_changed(package: ModuleType, value: Any, workers: int) -> Any:
    loader = package.DataLoader([1], num_workers=workers)
    result = attempt(lambda: setattr(loader, "multiprocessing_context", value))
    return result, type(loader.multiprocessing_context)


@alike
def test_workers_can_be_changed_between_epochs(package: ModuleType) -> Any:
    where = lambda key: minidl.get_worker_info() is not None  # noqa: E731
    loader = package.DataLoader(Samples(6, where), 2, num_workers=1, persistent_workers=True)
    before = comparable(list(loader))
    loader.num_workers = 0
    between = [comparable(list(loader)) for _ in range(2)]
    loader.num_workers, loader.prefetch_factor = 1, 2
    return before, between, comparable(list(loader))


@pytest.mark.parametrize(("name", "value"), [("prefetch_factor", 0), ("num_workers", -1)])
def test_no_epoch_begins_without_workers_or_their_tasks(name: str, value: int) -> None:
    """Torch's error. (It has a second one in `__del__`, which pytest would not let pass.)"""
    loader = minidl.DataLoader([1, 2], num_workers=1)
    setattr(loader, name, value)
    with pytest.raises(AssertionError, match=f"{name} must be greater than 0 for MultiProcessingDataLoaderIter"):
        iter(loader)


# ---- warnings


def warned(run: Callable[[], Any]) -> tuple[Any, list[tuple[Any, str, str]]]:
    """What `run` returns; category, text and file of its warnings, without Python's own about fork."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        returned = run()
    entries = [(entry.category, neutral(str(entry.message)), entry.filename) for entry in caught]
    return returned, [entry for entry in entries if "use of fork" not in entry[1]]


def read_on_after_its_length(package: ModuleType, workers: int) -> None:
    loader = package.DataLoader(ShortMinidlStream(4), num_workers=workers)
    len(loader)
    for _ in loader:
        pass


def unpicklable(package: ModuleType, start_method: str) -> Any:
    """Noticed before any worker runs, so it costs no imports."""
    options = {"num_workers": 1, "multiprocessing_context": start_method}
    error = attempt(lambda: iter(package.DataLoader([1], worker_init_fn=lambda worker_id: None, **options)))
    assert "lambda" in error[2]
    return error[1]


def pinned(package: ModuleType, **options: Any) -> Any:
    return iter(package.DataLoader([1], **options))


# What brings warnings -> (what to run, how many they are).
WARNINGS: dict[str, tuple[Callable[[ModuleType], Any], int]] = {
    "more workers than cores": (lambda package: package.DataLoader([1], num_workers=MORE_THAN_CORES), 1),
    # ... and again when iterated, as the number may have changed.
    "workers, iterated": (lambda package: iter(package.DataLoader([1], num_workers=MORE_THAN_CORES)), 2),
    "pinning": (lambda package: list(package.DataLoader([1], pin_memory=True)), 1),
    "pinning, a worker": (lambda package: list(package.DataLoader([1], pin_memory=True, num_workers=1)), 1),
    "device": (lambda package: pinned(package, pin_memory=True, pin_memory_device="cuda"), 2),
    "device, a worker": (lambda package: pinned(package, pin_memory=True, pin_memory_device="cuda", num_workers=1), 2),
    "stream longer than its length": (lambda package: read_on_after_its_length(package, 0), 2),
    "longer stream, a worker": (lambda package: read_on_after_its_length(package, 1), 2),
    "not to be pickled, spawn": (lambda package: unpicklable(package, "spawn"), 1),
    "not to be pickled, forkserver": (lambda package: unpicklable(package, "forkserver"), 1),
}


@pytest.mark.parametrize("what", WARNINGS)
def test_warnings_are_torchs(what: str) -> None:
    """The same categories and texts, and each but torch's own points at the line in this file that caused it."""
    if torch.accelerator.is_available() and ("pinning" in what or "device" in what):
        pytest.skip("with an accelerator memory is pinned")
    if not hasattr(os, "sched_getaffinity") and "workers" in what:
        pytest.skip("torch adds that it could not look which cores are ours")
    run, count = WARNINGS[what]
    (ours, our_warnings), (theirs, their_warnings) = warned(lambda: run(minidl)), warned(lambda: run(TORCH))
    assert [entry[:2] for entry in our_warnings] == [entry[:2] for entry in their_warnings]
    assert len(our_warnings) == count
    assert {entry[2] for entry in our_warnings} == {minidl.loader.__file__ if "workers" in what else __file__}
    assert not isinstance(ours, type) or ours == theirs


class Unnamed(ShortMinidlStream):
    def __repr__(self) -> str:
        raise ValueError("the warning cannot be made")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stream", [ShortMinidlStream, Unnamed])
@alike
def test_a_warning_that_is_an_error_comes_in_a_batchs_place(package: ModuleType, stream: Any, workers: int) -> Any:
    loader = package.DataLoader(stream(4), num_workers=workers)
    len(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return [neutral(str(step)) for step in steps(loader)]


# ---- what others reach into


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda how: how.__name__)
def test_an_iterator_cannot_be_pickled(workers: int, how: Callable[[Any], Any]) -> None:
    iterator = iter(minidl.DataLoader([1, 2], num_workers=workers))
    with pytest.raises(NotImplementedError) as raised:
        how(iterator)
    assert raised.value.args == ("{} cannot be pickled", type(iterator).__name__)
    assert type(iterator).__name__ in repr(iterator)


@BOTH
def test_a_loader_can_be_copied_also_after_an_epoch(loaders: ModuleType) -> None:
    loader = loaders.DataLoader(Squares(5), 2)
    batches = comparable(list(loader))
    assert comparable(list(copy.deepcopy(loader))) == batches
    assert comparable(list(pickle.loads(pickle.dumps(loader)))) == batches
    assert not [name for name, value in vars(loader).items() if isinstance(value, itertools.count)], (
        "from Python 3.14 on an itertools.count cannot be copied"
    )


@pytest.mark.parametrize("workers", [0, 1])
@BOTH
def test_the_profiler_shows_each_step_under_torchs_name(loaders: ModuleType, workers: int) -> None:
    with torch.autograd.profiler.profile() as profile:
        iterator = iter(loaders.DataLoader([1, 2], num_workers=workers))
        list(iterator)
    name = f"enumerate(DataLoader)#{type(iterator).__name__}.__next__"
    assert [event.name for event in profile.function_events].count(name) == 3  # the last one is StopIteration


@pytest.mark.parametrize("pin_memory", [False, "host"])
def test_names_that_other_code_reaches_into_are_torchs(pin_memory: Any) -> None:
    loader = minidl.DataLoader(Squares(9), 2, num_workers=2, pin_memory=pin_memory, persistent_workers=True)
    assert loader._iterator is None
    iterator = iter(loader)
    assert loader._iterator is iterator
    workers, thread = iterator._workers, iterator._pin_memory_thread
    assert [worker.is_alive() for worker in workers] == [True, True] and (thread is not None) == bool(pin_memory)
    assert (iterator._data_queue is iterator._worker_result_queue) == (not pin_memory)
    assert (iterator._send_idx, iterator._rcvd_idx, iterator._tasks_outstanding) == (4, 0, 4)
    assert list(iterator._task_info) == [0, 1, 2, 3]
    next(iterator)
    assert (iterator._send_idx, iterator._rcvd_idx) == (5, 1)
    assert list(iterator._task_info) == [1, 2, 3, 4]
    iterator._shutdown_workers()
    assert not any(each.is_alive() for each in [*workers, *[thread] * bool(thread)])


# ---- iterators, several and again


@pytest.mark.parametrize("workers", [0, 2])
@alike
def test_two_iterators_at_once_draw_what_torchs_draw(package: ModuleType, workers: int) -> Any:
    seed_all()
    loader = package.DataLoader(Samples(9, noise), 2, shuffle=True, num_workers=workers)
    return comparable(list(zip(loader, loader, strict=True)))


def a_pass(loaders: ModuleType, workers: int, key: int) -> Any:
    """A sample is a whole pass over a loader of `loaders`, made by the worker."""
    inner = loaders.DataLoader(list(range(key, key + 4)), 2, num_workers=workers)
    return [batch.clone() for batch in inner]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("inner_workers", [0, 1])
@alike
def test_a_loader_in_a_dataset_works_unless_both_have_workers(
    package: ModuleType, workers: int, inner_workers: int
) -> Any:
    """A worker is a daemon, which may have no children of its own: with workers in workers both raise."""
    dataset = Samples(3, functools.partial(a_pass, package, inner_workers))
    shown = [step[:2] for step in steps(package.DataLoader(dataset, num_workers=workers))]
    assert (shown[0] == ("error", AssertionError)) == bool(workers and inner_workers)
    return shown


# ---- subclasses


@pytest.mark.parametrize("workers", [0, 1])
@alike
def test_a_subclass_can_change_what_it_can_in_torch(package: ModuleType, workers: int) -> Any:
    class Twice(package.DataLoader):
        timeout = 60  # overridden by the instance's own

        def __init__(self, *args: Any, **options: Any) -> None:
            self.before = self._latest = "set before the rest"
            super().__init__(*args, **options)
            self.after, self._latest, self._dataset_kind = self.before, None, self._dataset_kind

        def check_worker_number_rationality(self) -> None:
            pass

        def _get_iterator(self) -> Any:
            return Around(super()._get_iterator())

        def __len__(self) -> int:
            return 2 * super().__len__()

        def __iter__(self) -> Iterator[Any]:
            return itertools.chain(super().__iter__(), super().__iter__())

    loader = Twice([1, 2, 3], 2, num_workers=workers, persistent_workers=bool(workers))
    assert len(loader) == 4
    frozen = attempt(lambda: setattr(loader, "batch_size", 5))
    return comparable(list(loader)), loader.after, loader.timeout, frozen


@alike
def test_a_subclass_may_have_an_iterator_of_its_own(package: ModuleType) -> Any:
    class Keeps(package.DataLoader):
        def __iter__(self) -> Any:
            self._iterator = super().__iter__()
            return self._iterator

    seed_all()
    loader = Keeps(Samples(4, noise), num_workers=1)
    return [comparable(next(iter(loader))) for _ in range(2)]


class Stumbles(list[int]):
    """A sampler that cannot begin, the second time."""

    begun = 0

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        return super().__iter__() if self.begun != 3 else 1 / 0  # type: ignore[return-value]  # (workers: twice at first)


@alike
def test_workers_outlive_a_sampler_that_fails_between_epochs(package: ModuleType) -> Any:
    samples = Samples(2, functools.partial(next, itertools.count()))  # a worker counts what it has made
    loader = package.DataLoader(samples, None, sampler=Stumbles([0, 1]), num_workers=1, persistent_workers=True)
    return [attempt(lambda: list(loader)) for _ in range(3)]


class FromMain(TorchStream):
    queue = FORK.SimpleQueue()

    def __iter__(self) -> Iterator[int]:
        return iter(self.queue.get())


@alike
def test_a_stream_may_wait_for_what_main_says_after_iter(package: ModuleType) -> Any:
    loader = package.DataLoader(FromMain(1), None, num_workers=1, persistent_workers=True)
    for epoch in range(2):
        iterator = iter(loader)
        FromMain.queue.put([epoch, 7])
        assert list(iterator) == [epoch, 7]


class Around:
    """An iterator around a loader's."""

    def __init__(self, iterator: Any) -> None:
        self.iterator, self._reset = iterator, getattr(iterator, "_reset", None)

    def __iter__(self) -> Iterator[Any]:
        yield from self.iterator


class Again:
    """A sampler without end, as in timm's MultiEpochsDataLoader."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


@pytest.mark.parametrize("workers", [0, 1])
@alike
def test_a_subclass_can_thaw_what_torch_freezes(package: ModuleType, workers: int) -> Any:
    """As timm does: its loader keeps one iterator for all epochs."""
    loader = package.DataLoader([1, 2, 3], 2, num_workers=workers)
    loader._DataLoader__initialized = False
    loader.batch_sampler = Again(loader.batch_sampler)
    loader._DataLoader__initialized = True
    frozen = attempt(lambda: setattr(loader, "batch_size", 5))
    batches = list(itertools.islice(loader, 5))
    assert len(batches) == 5
    return comparable(batches), frozen
