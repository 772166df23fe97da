"""Programs for notebooks.exercises.uses: datasets, and what a loader makes of them, whatever the schedule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import minidl
from minidl.messages import Died, Result
from minidl.states import WorkerState
from minidl.world.simulated import machine as machines
from minidl.world.simulated import sleep
from notebooks.exercises.programs import Keys, batches_or_errors, let_others_run


class Broken(Keys):
    """Several samples cannot be read."""

    def __init__(self, length: int, *unreadable: int) -> None:
        super().__init__(length)
        self.all_unreadable = unreadable

    def __getitem__(self, key: int) -> int:
        if key in self.all_unreadable:
            raise ValueError(f"sample {key} cannot be read")
        return super().__getitem__(key)


class Undecodable(Keys):
    """Sample 1 is no text: the exception's class wants five arguments."""

    def __getitem__(self, key: int) -> Any:
        return bytes([255]).decode("utf-8") if key == 1 else super().__getitem__(key)


class EndsInTheMiddle(Keys):
    """Map style; sample 2 raises StopIteration."""

    def __getitem__(self, key: int) -> int:
        if key == 2:
            raise StopIteration
        return super().__getitem__(key)


class EndsInTheMiddleOfItself(EndsInTheMiddle):
    """It can also be iterated, as a map-style dataset may be."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


class Streams(minidl.IterableDataset[Any]):
    """Iterable style: worker k has lengths[k] samples."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths

    def samples(self) -> Iterable[Any]:
        info = minidl.get_worker_info()
        assert info is not None
        return [10 * info.id + number for number in range(self.lengths[info.id])]

    def __iter__(self) -> Iterator[Any]:
        for sample in self.samples():
            let_others_run()
            yield sample


class WithNone(Streams):
    """Every second sample is None."""

    def samples(self) -> Iterable[Any]:
        return [None if number % 2 else number for number in range(5)]


def nothing(samples: list[Any]) -> None:
    """A collate_fn: what it is there for has happened."""


class FailsInTheMiddle(Streams):
    """The third sample raises."""

    def __iter__(self) -> Iterator[Any]:
        for sample in super().__iter__():
            if sample % 10 == 2:
                raise ValueError("this stream is broken")
            yield sample


class GoesOnAfterAnError(Streams):
    """The third sample raises, and the others come."""

    def __iter__(self) -> Iterator[Any]:
        self.rest = list(self.samples())
        return self

    def __next__(self) -> Any:
        let_others_run()
        if not self.rest:
            raise StopIteration
        if (sample := self.rest.pop(0)) % 10 == 2:
            raise ValueError("this sample cannot be read")
        return sample


class FirstIsSlow(Keys):
    """Sample 0 takes a second."""

    def __getitem__(self, key: int) -> int:
        if key == 0:
            sleep(1.0)
        return super().__getitem__(key)


class ItsOwnIterator(Streams):
    """It begins anew whenever it is iterated, and whenever it has ended."""

    def __iter__(self) -> Iterator[Any]:
        self.rest = list(self.samples())
        return self

    def __next__(self) -> Any:
        let_others_run()
        if not self.rest:
            self.rest = list(self.samples())
            raise StopIteration
        return self.rest.pop(0)


def every_key(keys: list[Any]) -> list[Any]:
    return keys


def loader_of(dataset: Any, **options: Any) -> Any:
    defaults = {"batch_size": 1, "collate_fn": every_key, "num_workers": 3, "prefetch_factor": 2}
    return minidl.DataLoader(dataset, **{**defaults, **options})


def epochs(dataset: Any, *lengths: int | None, **options: Any) -> list[Any]:
    """What each epoch of a persistent loader yields or raises, and how its counts are at the end of the last. A length
    is after how many batches an epoch is left."""
    loader = loader_of(dataset, persistent_workers=True, **options)
    found = []
    for length in lengths:
        found.append(list(itertools.islice(batches_or_errors(iter(loader)), length)))
    iterator = loader._iterator
    iterator._shutdown_workers()  # an exception that was raised again may keep it alive
    return [*found, sorted(iterator._task_info), iterator._send_idx - iterator._rcvd_idx]


def in_any_order(program: Callable[[], list[Any]]) -> list[Any]:
    return [sorted(each, key=str) if isinstance(each, list) else each for each in program()]


def counts(dataset: Any, **options: Any) -> list[Any]:
    """After an epoch nothing is outstanding, with any worker."""
    iterator = iter(loader_of(dataset, **options))
    found = list(batches_or_errors(iterator))
    iterator._shutdown_workers()
    return [found, iterator._tasks_outstanding, iterator._workers_num_tasks, iterator._send_idx, iterator._rcvd_idx]


def until_it_ends(dataset: Any, times: int, **options: Any) -> list[Any]:
    """What comes until StopIteration, so many times."""
    iterator = iter(loader_of(dataset, **options))
    found = [list(batches_or_errors(iterator)) for _ in range(times)]
    iterator._shutdown_workers()
    return found


def goes_on(dataset: Any, tries: int, **options: Any) -> list[Any]:
    """What so many calls of next() bring, whatever they raise."""
    iterator, found = iter(loader_of(dataset, **options)), []
    for _ in range(tries):
        try:
            found.append(next(iterator))
        except Exception as error:
            found.append(repr(error))
    iterator._shutdown_workers()
    return found


def two_at_once() -> list[Any]:
    loader = loader_of(Keys(5))
    return [(one, other) for one, other in zip(loader, loader, strict=True)]


class Late(Keys):
    """Sample 3 takes three seconds."""

    def __getitem__(self, key: int) -> int:
        if key == 3 and machines.is_running():
            sleep(3.0)
        return super().__getitem__(key)


def fails_in_worker_1(worker_id: int) -> None:
    if worker_id == 1:
        raise ValueError("no licence for worker 1")


def choices() -> list[Any]:
    """Whom `_choose_worker` chooses in states that a run seldom reaches, and what is sent when no worker is left."""
    iterator: Any = iter(loader_of(Keys(40)))
    active, ended, found = WorkerState.ACTIVE, WorkerState.EXHAUSTED, []
    for statuses, turn in (
        ([ended, active, active], 1),
        ([active, ended, active], 0),
        ([active, active, ended], 2),
        ([ended, active, ended], 2),
    ):
        iterator._workers_status, iterator._next_worker = statuses, turn
        found.append([iterator._choose_worker(6) for _ in range(4)])
    iterator._workers_status, iterator._next_worker, iterator._tasks_outstanding = [active, ended, active], 1, 1
    iterator._try_put_index()
    found.append([*iterator._workers_num_tasks, *(info.worker_id for info in iterator._task_info.values())])
    iterator._workers_status, iterator._tasks_outstanding = [ended] * 3, 1
    before = iterator._send_idx, sorted(iterator._task_info), list(iterator._workers_num_tasks)
    iterator._try_put_index()
    after = iterator._send_idx, sorted(iterator._task_info), list(iterator._workers_num_tasks)
    iterator._workers_status = [active] * 3
    iterator._shutdown_workers()
    return [*found, after == before, iterator._tasks_outstanding]


def choices_by_room() -> list[Any]:
    """Without order: whom `_choose_worker` chooses, by how many tasks each has."""
    iterator: Any = iter(loader_of(Keys(40), in_order=False))
    found = []
    of_six = ([2, 0, 1], 0), ([1, 2, 2], 1), ([0, 1, 2], 2), ([2, 2, 2], 0), ([2, 1, 2], 2)
    of_nine = ([2, 1, 0], 0), ([1, 0, 2], 2)
    for most, (tasks, turn) in [*((6, each) for each in of_six), *((9, each) for each in of_nine)]:
        iterator._workers_num_tasks, iterator._next_worker = list(tasks), turn
        chosen = []
        for _ in range(3):
            worker_id = iterator._choose_worker(most)
            chosen.append(worker_id)
            if worker_id is not None:
                iterator._workers_num_tasks[worker_id] += 1
        found.append(chosen)
    iterator._shutdown_workers()
    return found


def receives() -> list[Any]:
    """The counts after each message: a Died, then the batches of tasks 1 and 0; and how long each was waited for."""
    iterator: Any = iter(loader_of(Keys(6), num_workers=2))
    messages = [Died(iterator._epoch_id, 0), *(Result(iterator._epoch_id, k, k, [k]) for k in (1, 0))]
    waited: list[float] = []
    iterator._get_data = lambda timeout: (waited.append(timeout), messages.pop(0))[1]  # type: ignore[func-returns-value]
    found = []
    for timeout in (0, 2.5, 0):
        task_id = iterator._receive(timeout)
        arrived = [task for task, info in sorted(iterator._task_info.items()) if info.arrived]
        found.append((task_id, iterator._tasks_outstanding, list(iterator._workers_num_tasks), arrived))
    del iterator._get_data
    iterator._shutdown_workers()
    return [*found, waited]


def received_before(**options: Any) -> list[Any]:
    """Two messages are taken in before the first next(), as main does when it looks whether a worker has died."""
    iterator: Any = iter(loader_of(Keys(5), **options))
    for _ in range(2):
        iterator._receive(0)
    return list(iterator)


def there_already() -> list[Any]:
    """Without order: batch 1 has been taken in, batch 0 is being made, and none of the others may be waited for."""
    iterator: Any = iter(loader_of(FirstIsSlow(6), num_workers=2, in_order=False))
    iterator._receive(0.5)
    return [next(iterator), *sorted(iterator)]


def not_all_bring_batches(**options: Any) -> list[Any]:
    """The first two messages of `_receive` bring no batch."""
    iterator: Any = iter(loader_of(Keys(5), **options))
    receive, first = iterator._receive, [None, None]
    iterator._receive = lambda timeout: first.pop() if first else receive(timeout)
    found = sorted(iterator)
    del iterator._receive
    return found


def when_it_ends(**options: Any) -> list[Any]:
    """Whether the workers are gone: after the last batch, and at the end; of an epoch of none and of three."""
    found = []
    for length in (0, 3):
        iterator: Any = iter(loader_of(Keys(length), **options))
        batches = sorted(next(iterator) for _ in range(length))
        before = iterator._shutdown
        found.append((batches, before, list(iterator), iterator._shutdown))
        iterator._shutdown_workers()  # persistent ones would stay
    return found


class KeysThatFail:
    """Eight keys; then it raises."""

    def __iter__(self) -> Iterator[int]:
        yield from range(8)
        raise ValueError("no more keys can be read")


def fails_to_draw() -> list[Any]:
    return [list(batches_or_errors(iter(loader_of(Keys(9), sampler=KeysThatFail(), num_workers=2))))]
