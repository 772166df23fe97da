"""What an answer is tried with: one dataset class with options, and programs that load from it.

A program returns what the loader gave, and how things stand afterwards, by name: {"batches": [[0], [1]], ...}. With an
answer at work it must return what it returns with minidl's own functions. What each is about stands in
texts/programs.md. Some run once more with real processes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import minidl
from minidl import parallel
from minidl.world.simulated import machine as machines
from minidl.world.simulated import sleep, step

Raises = dict[int, Callable[[], BaseException]]


@dataclass(frozen=True)
class Program:
    """A program, and how it is to be tried."""

    name: str  # of its section in texts/programs.md; of a call, the call
    run: Callable[[], Any]
    chance: int = 8  # random schedules
    schedules: tuple[str, ...] = ()  # others that are likely to show a mistake
    faults: int = 0  # in each random schedule
    alone: bool = False  # a call: no simulated world is needed
    real: bool = False  # at the end it runs with real processes, too
    accepts: Callable[[Any, Any], str] | None = None  # of (outcome, minidl's outcome): what is wrong
    wanted: str = "all batches, or an error that names the dead worker, and stays"  # what it accepts
    options: dict[str, Any] = field(default_factory=dict)  # of `simulate`


def let_others_run() -> None:
    """In the simulated world other threads may run here, as they may anywhere in the real one."""
    if machines.is_running():
        step()


def wait(seconds: float) -> None:
    """In the simulated world only."""
    if seconds and machines.is_running():
        sleep(seconds)


class Samples(minidl.Dataset[Any]):
    """Map style: sample k is k. Some raise, some take time (virtual seconds)."""

    def __init__(self, length: int, raises: Raises | None = None, slow: dict[int, float] | None = None) -> None:
        self.length, self.raises, self.slow = length, raises or {}, slow or {}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: Any) -> Any:
        wait(self.slow.get(key, self.slow.get(-1, 0.0)))  # -1: all others
        if key in self.raises:
            raise self.raises[key]()
        let_others_run()
        return key


class SamplesInARow(Samples):
    """Map style; it can also be iterated, as a map-style dataset may be."""

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(self.length))


class Stream(Samples, minidl.IterableDataset[Any]):
    """Iterable style: worker 1 has samples 10, 11, ..., as many as lengths[1]."""

    def __init__(self, *lengths: int, own: bool = False, nones: bool = False, **options: Any) -> None:
        """`own`: it is its own iterator, goes on after an error, and begins anew when it is asked again after its end.
        `nones`: every second sample is None."""
        super().__init__(max(lengths), **options)
        self.lengths, self.own, self.nones = lengths, own, nones

    def begin(self) -> None:
        info = minidl.get_worker_info()
        number = info.id if info is not None else 0
        self.rest = [10 * number + k for k in range(self.lengths[number])]

    def __iter__(self) -> Iterator[Any]:
        self.begin()
        return self if self.own else self.generated()

    def generated(self) -> Iterator[Any]:
        while self.rest:
            yield next(self)

    def __next__(self) -> Any:
        if not self.rest:
            self.begin()
            raise StopIteration
        key = self.rest.pop(0)
        sample = self[key]
        return None if self.nones and key % 2 else sample


class Placed(Stream):
    """A stream that can begin at a place in it."""

    place = 0

    def generated(self) -> Iterator[Any]:
        for key in self.rest[self.place :]:
            self.place = key + 1
            yield key

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class Batch:
    """A batch that knows whether it is pinned. Pinning it may raise or take time, and so may its unpickling raise."""

    def __init__(self, samples: list[Any], pinning: Raises | None = None, takes: float = 0.0, lost: int = -1) -> None:
        self.samples, self.pinning, self.takes, self.lost = samples, pinning or {}, takes, lost
        self.pinned = False

    def pin_memory(self) -> Batch:
        let_others_run()
        wait(self.takes)
        if self.samples[0] in self.pinning:
            raise self.pinning[self.samples[0]]()
        pinned = Batch(self.samples)
        pinned.pinned = True
        return pinned

    def __reduce__(self) -> Any:
        return _unpickled, (self.samples, self.pinning, self.takes, self.lost)

    def __repr__(self) -> str:
        return f"{self.samples[0]} pinned" if self.pinned else f"{self.samples[0]} not pinned"

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)


def _unpickled(samples: list[Any], *options: Any) -> Batch:
    if samples[0] == options[-1]:
        raise ValueError("the shared memory is gone")
    return Batch(samples, *options)


def nothing(samples: list[Any]) -> None:
    """A collate_fn: what it is there for has happened."""


# ---- a training loop


@contextlib.contextmanager
def without_status_checks() -> Iterator[None]:
    """In the simulated world main does not wake every few seconds to check that all workers are alive. So a wait for
    nothing is a deadlock, and ends the run at once, not after hours of virtual time."""
    seconds = parallel.STATUS_CHECK_INTERVAL
    if machines.is_running():
        parallel.STATUS_CHECK_INTERVAL = None  # type: ignore[assignment]
    try:
        yield
    finally:
        parallel.STATUS_CHECK_INTERVAL = seconds


def loader_of(dataset: Any, **options: Any) -> Any:
    defaults = {"batch_size": 1, "collate_fn": list, "num_workers": 2, "prefetch_factor": 2}
    return minidl.DataLoader(dataset, **{**defaults, **options})


def batches_or_errors(iterator: Iterator[Any]) -> Iterator[Any]:
    """Each batch, or the name of the exception raised in its place: "ValueError". A RuntimeError is the last."""
    name = ""
    while name != "RuntimeError":
        let_others_run()
        try:
            yield next(iterator)
        except StopIteration:
            return
        except (ValueError, OSError, KeyError, RuntimeError) as error:
            name = "ValueError" if isinstance(error, ValueError) else type(error).__name__
            yield name


def load(dataset: Any, *lengths: int | None, in_order: bool = True, **options: Any) -> dict[str, Any]:
    """What each epoch gives, and how the iterator stands after the last. A length is after how many batches an epoch
    is left. Where the order is free the batches are sorted."""
    lengths = lengths or (None,)
    several, streams = len(lengths) > 1, isinstance(dataset, minidl.IterableDataset)
    loader = loader_of(dataset, **{"in_order": in_order, "persistent_workers": several, **options})
    found: dict[str, Any] = {}
    with without_status_checks():
        for epoch, length in enumerate(lengths):
            iterator = iter(loader)
            got = list(itertools.islice(batches_or_errors(iterator), length))
            free = not in_order or streams
            found[f"epoch {epoch}" if several else "batches"] = sorted(got, key=str) if free else got
        if lengths[-1] is None and found[list(found)[-1]][-1:] != ["RuntimeError"]:
            found |= standing(iterator, streams)
        iterator._shutdown_workers()  # an exception that was raised again may keep it alive
    return found


def standing(iterator: Any, streams: bool) -> dict[str, Any]:
    """How it stands when its epoch is over. (Tasks that an ended worker skips stay counted.)"""
    found = {"_task_info": sorted(iterator._task_info)}
    if not streams:
        found |= {name: getattr(iterator, name) for name in ("_send_idx", "_tasks_outstanding", "_workers_num_tasks")}
    return {**found, "_shutdown": iterator._shutdown}


def iterate(dataset: Any, **options: Any) -> dict[str, Any]:
    """The batches. What is raised comes through."""
    with without_status_checks():
        return {"batches": list(loader_of(dataset, **options))}


def goes_on(dataset: Any, tries: int, checks: bool = False, **options: Any) -> dict[str, Any]:
    """What so many calls of next() bring, whatever they raise."""
    iterator, found = iter(loader_of(dataset, **options)), []
    with contextlib.nullcontext() if checks else without_status_checks():
        for _ in range(tries):
            try:
                found.append(next(iterator))
            except (Exception, SystemExit) as error:
                found.append(type(error).__name__)
        iterator._shutdown_workers()
    return {"next()": found}


def two_at_once() -> dict[str, Any]:
    loader = loader_of(Samples(5), num_workers=3)
    with without_status_checks():
        return {"pairs": [(one, other) for one, other in zip(loader, loader, strict=True)]}


class FailingKeys:
    """Eight keys; then it raises."""

    def __iter__(self) -> Iterator[int]:
        yield from range(8)
        raise ValueError("no more keys can be read")


class Unsendable:
    """A key that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise ValueError("this key cannot be pickled")


def fails_in_worker_1(worker_id: int) -> None:
    if worker_id == 1:
        raise ValueError("no licence for worker 1")


def dropped(dataset: Any, **options: Any) -> dict[str, Any]:
    """One batch; then the iterator is dropped."""
    iterator = iter(loader_of(dataset, **options))
    with without_status_checks():
        batch = next(iterator)
    let_others_run()
    del iterator
    return {"batch": batch}


def after_an_end(**options: Any) -> dict[str, Any]:
    """Worker 0's stream ends at once, and worker 1 takes a second for each sample: how things stand after a batch."""
    iterator = iter(loader_of(Stream(0, 9, slow={-1: 1.0}), **options))
    with without_status_checks():
        found = {"batch": next(iterator), "tasks sent": iterator._send_idx}
        found["_workers_num_tasks of worker 1"] = iterator._workers_num_tasks[1]
        found["worker 0 is alive"] = iterator._workers[0].is_alive()
        iterator._shutdown_workers()
    return found


def in_whatever_order() -> dict[str, Any]:
    """Sample 0 takes a second: in which order the batches come."""
    iterator = iter(loader_of(Samples(8, slow={0: 1.0}), in_order=False))
    with without_status_checks():
        return {"batches": list(iterator), **standing(iterator, False)}


def places_of_streams() -> dict[str, Any]:
    """A stateful loader, whose results carry more than a batch, with a pin thread."""
    from minidl.stateful import StatefulDataLoader

    options: dict[str, Any] = {"batch_size": 1, "collate_fn": list, "num_workers": 1, "pin_memory": "host"}
    loader: Any = StatefulDataLoader(Placed(6), **options)
    iterator = iter(loader)
    batches = [next(iterator) for _ in range(2)]
    worker = loader.state_dict()["_snapshot"]["_worker_snapshots"]["worker_0"]
    iterator._shutdown_workers()
    return {"batches": batches, "the dataset's state": worker.get("dataset_state")}


# ---- deaths


OFTEN = {"num_workers": 2, "prefetch_factor": 2, "batch_size": 1, "collate_fn": list}


def error_of(iterator: Any, ask: Callable[[], Any]) -> str:
    """Whom an error names, and whether the next next() raises it again: "worker 1, and again"."""
    try:
        ask()
    except RuntimeError as error:
        who = _named(iterator, str(error))
        try:
            batch = next(iterator)
        except (RuntimeError, StopIteration) as again:
            return f"{who}, and again" if str(again) == str(error) else f"{who}, and then {type(again).__name__}"
        return f"{who}, and then batch {batch}"
    return "nothing"


def _named(iterator: Any, text: str) -> str:
    workers = enumerate(iterator._workers)
    named = [f"worker {k}" for k, each in workers if f"worker {k}" in text or f"pid {each.pid}" in text]
    return " and ".join(named) or ("the pin thread" if "pin" in text.lower() else "nobody")


def struck(dataset: Any, killed: Iterable[int] = (), after: int = 1, **options: Any) -> dict[str, Any]:
    """Workers are killed after so many batches; what comes then, and what the error names."""
    iterator = iter(loader_of(dataset, **options))
    found = [next(iterator) for _ in range(after)]

    def go_on() -> None:
        for number in killed:
            iterator._workers[number].kill()
            iterator._workers[number].join(5)
        for batch in iterator:
            let_others_run()
            found.append(batch)

    named = error_of(iterator, go_on)
    iterator._shutdown_workers()
    return {"error": named} if killed else {"batches": found, "error": named}


def unnoticed(*numbers: int, dataset: Any = None, **options: Any) -> dict[str, Any]:
    """Workers have died and main has not noticed: what the health check raises, and notes of the first one."""
    from minidl import deaths

    iterator = iter(loader_of(dataset or Samples(20), **options))
    next(iterator)
    iterator._in_use = True  # the handler of SIGCHLD leaves the news to it
    for number in numbers:
        iterator._workers[number].kill()
        iterator._workers[number].join(5)
    named = error_of(iterator, lambda: deaths.check_health(iterator))
    iterator._shutdown_workers()
    return {"error": named, "status": iterator._workers_status[numbers[0]].name}


def next_epoch() -> dict[str, Any]:
    """Worker 0 is killed after its stream has ended, which costs nothing; but then there is a second epoch."""
    loader = loader_of(Stream(1, 4), persistent_workers=True)
    iterator = iter(loader)
    found = [next(iterator) for _ in range(3)]  # to get the third, main has learned that worker 0's stream has ended
    iterator._workers[0].kill()
    iterator._workers[0].join(5)
    found += iterator
    return {"epoch 0": sorted(found), "error": error_of(iterator, lambda: iter(loader))}


def handshake_times_out() -> dict[str, Any]:
    """An abandoned epoch leaves a worker with a sample that takes long; the loader has a timeout."""
    loader = loader_of(Samples(8, slow={3: 30.0}), persistent_workers=True, timeout=2)
    iterator = iter(loader)
    next(iterator)
    try:
        iter(loader)
    except RuntimeError:
        return {"the handshake": "RuntimeError"}
    return {"the handshake": "it has ended"}


def named_or_complete(outcome: Any, expected: Any) -> str:
    """For runs in which a worker is killed: all batches, or at once an error that names the worker, and stays."""
    result, complete = outcome.result, expected.result
    killed = [move.number - 1 for move in outcome.schedule.moves if move.what.name == "KILL"]
    if result == complete or not killed:
        return "" if result == complete else f"it gave {result}"
    if result["error"] != f"worker {killed[0]}, and again":
        return f"worker {killed[0]} was killed; the error names {result['error']}"
    got = result["batches"]
    return "" if got == complete["batches"][: len(got)] else f"it gave {got} before the error"


def as_far_as_it_got(outcome: Any, expected: Any) -> str:
    """For runs in which an error ends it all: some batches may be on their way when it does."""
    got, wanted = outcome.result, expected.result
    one, other = got["batches"], wanted["batches"]
    if "error" not in got:  # it is the last of the batches
        one, other = one[:-1], other[:-1]
        got, wanted = {"error": got["batches"][-1:]}, {"error": wanted["batches"][-1:]}
    same = got["error"] == wanted["error"] and all(mine == its for mine, its in zip(one, other, strict=False))
    return "" if same else f"it gave {outcome.result}"


# ---- the programs by name

KEY_ERROR, VALUE_ERROR = (functools.partial(each, "it cannot be read") for each in (KeyError, ValueError))
NO_TEXT = functools.partial(UnicodeDecodeError, "utf-8", b"\xff", 0, 1, "no text")


def program(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Program:
    """Options that are Program's are taken out; the rest are the function's."""
    own = {each: options.pop(each) for each in list(options) if each in Program.__dataclass_fields__}
    own["options"] = {"capacity": own["options"]} if isinstance(own.get("options"), int) else {}
    return Program(name, functools.partial(function, *args, **options), **own)


FAILS: Raises = dict.fromkeys((0, 3, 4, 7), VALUE_ERROR)
THIRD: Raises = dict.fromkeys((12, 22), VALUE_ERROR)  # of two streams
UNPINNABLE: Raises = {1: VALUE_ERROR, 3: OSError, 4: KEY_ERROR}
KILL_MAIN = tuple(f"{at}.k0" for at in (50, 75, 100, 130))
KILL_ONE = tuple(f"{at}.k{number}" for number in (1, 2) for at in range(20, 190, 17))
KILL_LATER = tuple(f"{at}.k{number}" for number in (1, 2) for at in range(82, 222, 14))
PIN: dict[str, Any] = {"pin_memory": "host", "collate_fn": Batch, "prefetch_factor": 1}


def pins(**trouble: Any) -> dict[str, Any]:
    return {**PIN, "collate_fn": functools.partial(Batch, **trouble)}


PROGRAMS = [
    # maps
    program("eight", load, Samples(8), chance=40, real=True),
    program("a slow one", load, Samples(8, slow={0: 0.0002})),
    program("ten", load, Samples(10), prefetch_factor=3, chance=30, real=True),
    program("four", load, Samples(4), prefetch_factor=3),
    program("none", load, Samples(0)),
    program("one at a time", load, Samples(5, FAILS), num_workers=1, prefetch_factor=1),
    program("keys one by one", load, Samples(5), batch_size=None, collate_fn=None),
    program("errors", load, Samples(8, FAILS), None, None, num_workers=3, real=True),
    program("an odd error", load, Samples(4, {1: NO_TEXT})),
    program("StopIteration", goes_on, SamplesInARow(5, {2: StopIteration}), 7),
    program("epochs left", load, Samples(9), 2, None, 1, None, num_workers=3),
    program("an epoch with an error left", load, Samples(9, {2: VALUE_ERROR}), 1, None, chance=20),
    program("no batches but None", load, Samples(7), None, None, num_workers=3, collate_fn=nothing),
    program("failing keys", load, Samples(9), sampler=FailingKeys()),
    program("keys that cannot be pickled", load, Samples(3), batch_sampler=[[0], [Unsendable()], [2]], batch_size=1),
    program("two at once", two_at_once),
    program("timeout", goes_on, Samples(5, slow={3: 3.0}), 9, num_workers=3, timeout=1),
    program("worker_init_fn raises", load, Samples(8), num_workers=3, worker_init_fn=fails_in_worker_1),
    program("main dies", load, Samples(8), prefetch_factor=3, schedules=KILL_MAIN, chance=0),
    program("dropped", dropped, Samples(9), prefetch_factor=3, chance=30),
    program("slow and dropped", dropped, Samples(20, slow={0: 0.0, 1: 0.0, -1: 1.0}), prefetch_factor=4, chance=0),
    # streams
    program("four and one", load, Stream(4, 1), chance=40, real=True),
    program("one and four", load, Stream(1, 4), prefetch_factor=3, chance=20),
    program("two epochs of streams", load, Stream(1, 3), None, None, chance=30, real=True),
    program("three streams", load, Stream(0, 5, 2), None, 2, None, num_workers=3, batch_size=2),
    program("the last stream goes on", load, Stream(0, 0, 9), num_workers=3),
    program("unbatched streams", load, Stream(0, 3, 1, own=True), num_workers=3, batch_size=None, collate_fn=None),
    program("streams of None", load, Stream(5, 4, 3, nones=True), num_workers=3, batch_size=2),
    program("None unbatched", load, Stream(3, 2, nones=True), batch_size=None, collate_fn=None),
    program("streams that restart", load, Stream(4, 0, 3, own=True), num_workers=3, batch_size=3),
    program("drop_last", load, Stream(4, 3), batch_size=2, drop_last=True),
    program("a stream fails", load, Stream(1, 4, 2, raises={12: VALUE_ERROR}), num_workers=3, batch_size=2),
    program("a stream goes on", load, Stream(1, 5, 4, own=True, raises=THIRD), num_workers=3),
    program("an end", after_an_end),
    program("an end, persistent", after_an_end, persistent_workers=True),
    # without order
    program("eight in any order", load, Samples(8), in_order=False, chance=40, real=True),
    program("a slow one in any order", in_whatever_order),
    program("errors in any order", load, Samples(8, FAILS), None, None, num_workers=3, in_order=False),
    program("failing keys in any order", load, Samples(9), sampler=FailingKeys(), in_order=False),
    program("one at a time in any order", load, Samples(5, FAILS), num_workers=1, prefetch_factor=1, in_order=False),
    program("none in any order", load, Samples(0), in_order=False),
    # the pin thread
    program("pinned", load, Samples(4), **PIN, chance=20),
    program("an error, pinned", load, Samples(4, {1: VALUE_ERROR}), **PIN, real=True),
    program("pinning raises", load, Samples(6), **pins(pinning=UNPINNABLE), real=True),
    program("a message is lost", load, Samples(4), **pins(lost=1), accepts=as_far_as_it_got),
    program("two epochs, pinned", load, Samples(2), None, None, **PIN),
    program("streams, pinned", load, Stream(1, 2), **PIN),
    program("places, pinned", places_of_streams, chance=2),
    # deaths
    program("a stream has ended", struck, Stream(1, 4), chance=20),
    program("slow", struck, Samples(4, slow={2: 12.0})),
    program("a slow stream", struck, Stream(1, 3, slow={11: 12.0})),
    program("killed", struck, Samples(10), schedules=KILL_ONE, chance=0, accepts=named_or_complete),
    program("a death unnoticed", unnoticed, 1),
    program("two deaths unnoticed", unnoticed, 0, 1),
    program("a death unnoticed, pinned", unnoticed, 1, pin_memory="host"),
    program("a death unnoticed, after an end", unnoticed, 1, dataset=Stream(0, 9, slow={-1: 1.0})),
    program("one is killed", struck, Samples(20), (1,), real=True),
    program("both are killed", struck, Samples(20), (1, 0)),
    program("a worker exits", struck, Samples(20, {7: functools.partial(SystemExit, 0)}), accepts=as_far_as_it_got),
    program("the pin thread dies", goes_on, Samples(4), 2, True, **pins(pinning={0: SystemExit})),
    program("the pin thread dies late", goes_on, Stream(0, 4), 2, True, **pins(pinning={10: SystemExit})),
    program("the next epoch", next_epoch),
    program("a message is lost after an end", struck, Stream(1, 4), **pins(lost=12), accepts=as_far_as_it_got),
    # the handshake
    program("an epoch left", load, Samples(8), 1, None, chance=60, real=True),
    program("two epochs", load, Samples(4), None, None, chance=20),
    program("a death between epochs", load, Stream(1, 3), None, None, schedules=KILL_LATER, chance=0,
            accepts=lambda outcome, expected: ""),
    program("the handshake's timeout", handshake_times_out),
]  # fmt: skip
