"""What an answer is examined with: programs by name, with arguments that the judge draws. Each returns plain data, the
same for every right answer, and is run twice: where nothing of the grader is (examinee.py), and with minidl's own
functions, in a process that no answer has to do with.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import random
import socket
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

import minidl
from minidl import world as worlds
from minidl.events import Queue
from minidl.messages import Died, Result, Resume, Resumed, Stop, StreamEnd, Task
from minidl.queues import Channel, Producer
from minidl.transport import NO_SLOT, Handles, Packer, Unpacker
from notebooks.exercises import use_programs as uses
from notebooks.exercises.catalogue import as_minidl_does as calls
from notebooks.exercises.catalogue import death_programs, pinning_programs, scripted, worker_script
from notebooks.exercises.programs import Keys, put_in_place

FLOATS = 10_000  # of a batch: too many to follow a pickle through a pipe
ERRORS = {each.__name__: each for each in (KeyboardInterrupt, OSError, SystemExit)}


def run(question: dict[str, Any], answer: Any) -> Any:
    """What the program returns, or "raised ..."."""
    program = PROGRAMS[question["program"]]
    more = {"answer": answer} if "answer" in program.__code__.co_varnames[: program.__code__.co_argcount] else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of more workers than cores
            value = program(**question["args"], **more)
        json.dumps(value)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of the learner's code, too
        return f"raised {type(error).__name__}: {error}"
    return value


# ---- exercises 1 to 4


def known_calls(number: int) -> list[str]:
    return [calls.outcome_of(call) for _, call in calls.CALLS[number]]


def fetched(keys: Any, batching: bool, at_once: bool) -> str:
    kind = calls.SaidAtOnce if at_once else calls.Said
    return calls.outcome_of(lambda: calls.fetched(kind, keys, batching))


def collated(batch: list[Any]) -> str:
    """Lists in it come back as lists; so do tuples, which JSON does not have."""
    return calls.outcome_of(lambda: calls.collated(batch, {int: calls.named("ints"), str: calls.named("strs")}))


def lists(length: int, size: int, drop_last: bool) -> list[Any]:
    return calls.lists(range(length), size, drop_last)


def shares(length: int, ranks: int, epochs: list[int], seed: int, drop_last: bool) -> list[Any]:
    return calls.shares(length, ranks, *epochs, shuffle=True, seed=seed, drop_last=drop_last)


def late(length: int, ranks: int, seed: int) -> list[Any]:
    """The epoch is set after the iterator is made; and the default generators are left as they were."""
    sampler: Any = minidl.DistributedSampler(range(length), ranks, 0, shuffle=True, seed=seed)
    states = torch.get_rng_state().tolist(), random.getstate()
    keys = iter(sampler)
    sampler.set_epoch(3)
    return [list(keys), states == (torch.get_rng_state().tolist(), random.getstate())]


def ranks(length: int, ranks: int, batch_size: int) -> list[Any]:
    found = []
    for rank in range(ranks):
        sampler: Any = minidl.DistributedSampler(range(length), ranks, rank, shuffle=True, seed=length)
        found.append(list(uses.loader_of(Keys(length), sampler=sampler, batch_size=batch_size, num_workers=1)))
    return found


# ---- exercises 5 to 9: loaders with real workers


class Loads(uses.Broken):
    """A sample says which worker has loaded it. One of them waits until main, or another worker, has come so far."""

    def __init__(self, length: int, unreadable: Iterable[int], waits: int | None, until: int | None) -> None:
        super().__init__(length, *unreadable)
        self.waits, self.until = waits, until
        self.event = multiprocessing.get_context("fork").Event()

    def __getitem__(self, key: int) -> Any:
        if key == self.waits:
            self.event.wait()
        if key == self.until:
            self.event.set()
        info = minidl.get_worker_info()
        assert info is not None
        return super().__getitem__(key), info.id


def dispatched(
    length: int, unreadable: list[int], epochs: int, waits: int | None, until: int | None, **options: Any
) -> list[Any]:
    """In order: each batch and how many tasks have been sent by then; and what is left at the end."""
    found: list[Any] = []
    loader = uses.loader_of(Loads(length, unreadable, waits, until), **options)
    for _ in range(epochs):
        iterator: Any = iter(loader)
        found.append(iterator._send_idx)
        for batch in uses.batches_or_errors(iterator):
            found.append([batch, iterator._send_idx])
        found.append(sorted(iterator._task_info))
        found.append([iterator._tasks_outstanding, iterator._workers_num_tasks, iterator._rcvd_idx])
    iterator._shutdown_workers()
    return found


def out_of_order(length: int, num_workers: int, prefetch_factor: int) -> list[Any]:
    """Worker 0 waits in its first task until main has all that the others can bring."""
    dataset = Loads(length, (), 0, None)
    options = {"num_workers": num_workers, "prefetch_factor": prefetch_factor, "in_order": False}
    iterator = iter(uses.loader_of(dataset, **options))
    others = length - prefetch_factor  # those of worker 0, which gets no more until it has brought one
    first = sorted(next(iterator)[0][0] for _ in range(others))
    dataset.event.set()
    return [first, sorted(batch[0][0] for batch in iterator)]


def epochs(length: int, unreadable: list[int], lengths: list[int | None], **options: Any) -> list[Any]:
    return uses.epochs(uses.Broken(length, *unreadable), *lengths, **options)


def any_epochs(length: int, unreadable: list[int], lengths: list[int | None], **options: Any) -> list[Any]:
    return uses.in_any_order(functools.partial(epochs, length, unreadable, lengths, in_order=False, **options))


def streams(lengths: list[int], epochs: list[int | None], **options: Any) -> list[Any]:
    return uses.in_any_order(functools.partial(uses.epochs, uses.Streams(*lengths), *epochs, **options))


def restarts(lengths: list[int], batch_size: int) -> list[Any]:
    stream = uses.ItsOwnIterator(*lengths)
    return uses.in_any_order(lambda: [list(uses.loader_of(stream, batch_size=batch_size))])


def stop_in_a_map(length: int) -> list[Any]:
    return uses.until_it_ends(uses.EndsInTheMiddle(length), 2)


def worker_alone(stream: bool, script: list[list[Any]], init: str) -> list[str]:
    """["task", 3, 12, 13] and the like, one after the other."""

    def message(what: str, *numbers: int) -> Any:
        if what == "task":
            return worker_script.task(*numbers)
        if what == "done":  # main shuts down before the task that comes
            return worker_script.when_done(worker_script.task(*numbers))
        if what == "unsent":
            return Task(worker_script.EPOCH, numbers[0], worker_script.UNSENT)
        return Resume(worker_script.EPOCH) if what == "resume" else Stop(worker_script.EPOCH)

    dataset = worker_script.Stream if stream else worker_script.Samples
    inits = {"counts": worker_script.counts, "fails": worker_script.fails, "ctrl_c": worker_script.ctrl_c}
    return worker_script.run(dataset, inits[init], tuple(message(*each) for each in script))


# ---- exercises 10 to 13


def pinned(length: int, unreadable: list[int], epochs: int, **options: Any) -> list[str]:
    dataset = uses.Broken(length, *unreadable)
    return pinning_programs.loaded(dataset, pinning_programs.Unpinnable, epochs, **options)


def shaken(states: str, old: list[list[str]], order: list[int], timeout: float, raises_at: int | None) -> list[str]:
    kinds: dict[str, Callable[[int], Any]] = {
        "batch": lambda k: Result(scripted.OLD, 2, k, [2]),
        "error": lambda k: Result(scripted.OLD, 3, k, scripted.FAILED),
        "end": lambda k: Result(scripted.OLD, 4, k, StreamEnd(k)),
        "resumed": lambda k: Resumed(scripted.OLD, k),
        "died": lambda k: Died(scripted.OLD, k),
    }
    late = tuple(tuple(kinds[each](k) for each in its) for k, its in enumerate(old))
    return scripted.Handshake("", states, late, tuple(order), timeout, raises_at).shaken()


def health(states: str, pin: bool | None, exitcode: int, ended: int | None, answer: Any) -> str:
    check = scripted.checked_health if ended is None else functools.partial(scripted.noticed_end, ended)
    return scripted.Watched(states, pin, exitcode).checked(answer, check)


def struck(number: int, num_workers: int) -> str:
    """A worker is killed."""
    iterator: Any = iter(minidl.DataLoader(Keys(40), **{**death_programs.OPTIONS, "num_workers": num_workers}))
    next(iterator)

    def go_on() -> None:
        iterator._workers[number].kill()
        iterator._workers[number].join(5)
        list(iterator)

    return death_programs.error_of(iterator, go_on)


def shut_down_alone(ends: list[float], pin_takes: float, own: bool, answer: Any) -> list[str]:
    return scripted.in_order(scripted.Loader(tuple(ends), own=own, pin_takes=pin_takes), answer)


def interrupted(ends: list[float], step: str, error: str, answer: Any) -> list[str]:
    return scripted.after_an_error(scripted.Loader(tuple(ends), step, ERRORS[error]), answer)


def ends(length: int, taken: int, **options: Any) -> list[Any]:
    """An epoch that is left after so many batches, or not: how the workers have ended, and what is left."""
    iterator: Any = iter(uses.loader_of(Keys(length), **options))
    found = [next(iterator) for _ in range(taken)] if taken < length else list(iterator)
    workers = iterator._workers
    iterator._shutdown_workers()
    iterator._shutdown_workers()
    codes = [each.exitcode for each in workers]
    return [found, codes, len(multiprocessing.active_children()), threading.active_count() - 1, _children()]


def _children() -> bool:
    """Whether this process has children, zombies included."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


# ---- exercises 14 and 16


def queue(count: int, size: int, read_before: bool) -> list[Any]:
    """Messages of `size` keys, more than fit into the pipe: what is read, what `closed` says, whether the feeder ends
    and the pipe, too."""
    world = worlds.current()
    reader, writer = world.pipe()
    producer = Producer(world, writer, Queue.INDEX, 0)
    channel = Channel(0, reader, world.flag(), Handles(world))
    for number in range(count):
        producer.put(Task(0, number, [number] * size))
    found: list[Any] = [producer.closed]
    for closes in (not read_before, read_before):
        if closes:
            producer.close()
            producer.close()
            found.append(producer.closed)
        else:
            while channel.open and len(channel.whole) < (count if read_before else count + 1):
                channel.read()
    tasks = [world.unpickle(each[0]) for each in channel.whole if each is not None]
    producer.join_thread()
    return [*found, [(each.task_id, len(each.keys)) for each in tasks], threading.active_count() - 1]


def kept(keeps: int, lengths: list[int]) -> list[float]:
    """Epochs of one worker; all but the last are left. The caller keeps the last `keeps` batches, and looks at each
    when it drops it."""
    options: dict[str, Any] = {"num_workers": 1, "collate_fn": _filled, "persistent_workers": True}
    loader = uses.loader_of(Keys(lengths[-1]), **options)
    seen, now = [], deque[torch.Tensor]()
    for length in lengths:
        iterator = iter(loader)
        for _ in range(length):
            now.append(next(iterator))
            seen += [_value(now.popleft())] if len(now) > keeps else []
    return seen + [_value(batch) for batch in now]


def _filled(keys: list[int]) -> torch.Tensor:
    return torch.full((FLOATS,), float(keys[0]))


def _value(batch: torch.Tensor) -> float:
    """The number that all of a batch is; -1: it is not all the same."""
    return float(batch[0]) if bool((batch == batch[0]).all()) else -1.0


def slots(steps: list[list[Any]], most: int) -> list[Any]:
    """What is granted, and whether each batch is still as it came when it is dropped. See slot_trials.py."""
    world = worlds.current()
    packer, unpacker = Packer(world, 0), Unpacker(world, 0, most)
    granted: list[Any] = []
    batches: dict[int, Any] = {}
    found: list[Any] = []
    for what, *task in steps:
        if what == "grant":
            slot, fresh = unpacker.grant(0, len(granted))
            granted.append((slot, fresh))
            found.append(["none" if slot == NO_SLOT else slot, bool(fresh)])
        elif what == "drop":
            found.append(bool((batches.pop(task[0]) == task[0]).all()))
        elif what == "reclaim":
            unpacker.reclaim()
        else:
            data = torch.full((FLOATS,), task[0]) if what == "batch" else "an exception, which needs no memory"
            pieces, memory = packer.pack(Result(0, task[0], 0, data, packer.room(*granted[task[0]])))
            came = unpacker.unpack(b"".join(pieces), memory).data
            if what == "batch":
                batches[task[0]] = came
            del came
    return found


def named(answer: Any) -> Any:
    """Exercise 15."""
    return answer.names.get("ANSWERS")


def trained(answer: Any) -> None:
    """Exercise 17: its files, and who takes its steps, are behind a socket. See catalogue/far_storage.py."""
    storage, folder, names = os.path.abspath("storage"), Path.cwd() / "files", answer.names
    own = FunctionType(names["step"].__code__, names)
    torch.set_num_threads(1)
    folder.mkdir()
    names["make_files"](folder)  # for who lists them: what they hold is not what read() returns

    def ask(what: str, given: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as lines:
            connection.connect(storage)
            print(json.dumps({what: given}), file=lines, flush=True)
            return json.loads(lines.readline())

    def step(ids: Any, values: Any, labels: Any) -> Any:
        numbers, classes, rows = (torch.as_tensor(each).detach() for each in (ids, labels, values))
        ask("step", [numbers.tolist(), classes.tolist(), rows.numpy().tobytes().hex()])
        return own(ids, values, labels)

    put_in_place(names, read=lambda folder, name: ask("read", Path(name).name), step=step)
    names["train"](folder)


# By name; those that are here hide others.
PROGRAMS: dict[str, Any] = vars(uses) | vars(scripted) | globals()
