"""What an answer is asked in its examination: programs of exam_programs.py, with arguments drawn by chance."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from minidl.transport import NO_SLOT
from notebooks.exercises import bugs
from notebooks.exercises.catalogue import far_storage, slot_trials

STEPS = ("stop_pin_thread", "sets the done event", "tell_to_stop", "join")  # of a shutdown, in which an error may come


Judge = Callable[[Any], tuple[str, str] | None]  # what was got, and what was expected


@dataclass(frozen=True)
class Question:
    """A program to run. What it returns is compared with what it returns with minidl's own functions; or `judge` says
    what is wrong with it; or the judge who has been `beside`, given the answer's folder and what to call at a beat."""

    program: str
    args: dict[str, Any]
    judge: Judge | None = None
    beside: Callable[[Path, Callable[[], None]], contextlib.AbstractContextManager[Judge]] | None = None

    @property
    def asked(self) -> dict[str, Any]:
        return {"program": self.program, "args": self.args}

    @property
    def words(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.args.items())
        return f"{self.program}({given})"


def drawn(number: int, chance: random.Random) -> list[Question]:
    """The questions of one examination."""
    return list(ASKED[number](chance))


def _some(chance: random.Random, length: int) -> list[int]:
    """Some of the keys."""
    return sorted(chance.sample(range(length), min(length, chance.randint(1, 3))))


def _fetches(chance: random.Random) -> Iterator[Question]:
    yield Question("known_calls", {"number": 1})
    for at_once in (False, True):
        keys = [chance.randrange(10, 90) for _ in range(chance.randint(1, 6))]
        yield Question("fetched", {"keys": keys, "batching": True, "at_once": at_once})
        yield Question("fetched", {"keys": keys[0], "batching": False, "at_once": at_once})
    yield from _loaders(chance, 1)


def _collations(chance: random.Random) -> Iterator[Question]:
    yield Question("known_calls", {"number": 2})
    for _ in range(4):
        width, count = chance.randint(1, 4), chance.randint(1, 4)
        made = [[_nested(k, chance.random()) for k in range(width)] for _ in range(count)]
        keys = [chance.randrange(100) for _ in range(width)]
        batch: list[Any] = [{f"field {key}": k for key, k in zip(keys, row, strict=True)} for row in made]
        yield Question("collated", {"batch": [{"x": chance.randrange(9), "y": row} for row in made]})
        yield Question("collated", {"batch": [[[chance.randrange(99), "text"] for _ in range(width)] for _ in made]})
        yield Question("collated", {"batch": [dict.fromkeys(each, 1) for each in batch]})
    yield from _loaders(chance, 1)


def _nested(depth: int, number: float) -> Any:
    value: Any = int(number * 100)
    for _ in range(depth):
        value = [value, "a"]
    return value


def _key_lists(chance: random.Random) -> Iterator[Question]:
    yield Question("known_calls", {"number": 3})
    for drop_last in (False, True) * 3:
        length, size = chance.randint(0, 40), chance.randint(1, 9)
        yield Question("lists", {"length": length, "size": size, "drop_last": drop_last})
    yield from _loaders(chance, 1, batch_size=3)


def _shares(chance: random.Random) -> Iterator[Question]:
    yield Question("known_calls", {"number": 4})
    for drop_last in (False, True) * 3:
        ranks = chance.randint(1, 6)
        length, epochs = chance.randint(ranks, 40), [chance.randrange(50) for _ in range(2)]
        args = {"length": length, "ranks": ranks, "epochs": epochs, "seed": chance.randrange(2**31)}
        yield Question("shares", {**args, "drop_last": drop_last})
        yield Question("late", {"length": length, "ranks": ranks, "seed": chance.randrange(2**31)})
    yield Question("ranks", {"length": chance.randint(5, 11), "ranks": 2, "batch_size": 2})


def _loaders(chance: random.Random, count: int = 2, **options: Any) -> Iterator[Question]:
    """In order."""
    for _ in range(count):
        length = chance.randint(5, 12)
        yield Question("epochs", {"length": length, "unreadable": _some(chance, length), "lengths": [None], **options})


def _dispatched(chance: random.Random, length: int, workers: int, prefetch: int, **more: Any) -> Question:
    args = {"length": length, "unreadable": [], "epochs": 1, "waits": None, "until": None}
    return Question("dispatched", {**args, "num_workers": workers, "prefetch_factor": prefetch, **more})


def _sends(chance: random.Random) -> Iterator[Question]:
    length, prefetch = chance.randint(9, 14), chance.randint(1, 3)
    yield _dispatched(chance, length, 3, prefetch, unreadable=_some(chance, length))
    yield _dispatched(chance, chance.randint(1, 3), 2, 2, epochs=2, persistent_workers=True)
    yield _streams(chance, [None])
    for program in ("choices", "fails_to_draw"):
        yield Question(program, {})


def _streams(chance: random.Random, epochs: list[int | None]) -> Question:
    lengths = [0, chance.randint(1, 6), chance.randint(1, 6)]
    chance.shuffle(lengths)
    return Question("streams", {"lengths": lengths, "epochs": epochs, "batch_size": chance.randint(1, 3)})


def _worker_loops(chance: random.Random) -> Iterator[Question]:
    def tasks(count: int, *others: int) -> list[list[Any]]:
        numbers = sorted(chance.sample(range(50), count))
        keys = [*others, *(chance.choice((0, 1, 2, 4, 6, 7, 9, 10)) for _ in range(count - len(others)))]
        chance.shuffle(keys)
        return [["task", number, key] for number, key in zip(numbers, keys, strict=True)]

    last = tasks(2)
    done = [*last[:1], ["done", *last[1][1:]], ["task", 60, 1], ["stop"]]
    for stream, script, init in (
        (False, [*tasks(chance.randint(2, 5)), ["stop"], ["task", 70, 2]], "counts"),
        (False, [*tasks(4, 3, 5), ["stop"]], "counts"),
        (False, done, "counts"),
        (False, [*tasks(1), ["task", 55, 8], ["task", 56, 1], ["stop"]], "counts"),
        (False, [*tasks(3), ["stop"]], chance.choice(("fails", "ctrl_c"))),
        (chance.random() < 0.5, [["unsent", chance.randrange(9)], ["task", 10, 1], ["stop"]], "counts"),
        (True, [*tasks(chance.randint(1, 4)), ["resume"], *tasks(chance.randint(1, 4)), ["stop"]], "counts"),
    ):
        yield Question("worker_alone", {"stream": stream, "script": script, "init": init})
    length = chance.randint(6, 11)
    lengths = [chance.randint(1, 4), None]
    yield Question("epochs", {"length": length, "unreadable": _some(chance, length), "lengths": lengths})
    yield _streams(chance, [None, None])
    yield Question("stop_in_a_map", {"length": chance.randint(4, 8)})


def _in_order(chance: random.Random) -> Iterator[Question]:
    prefetch = chance.randint(1, 3)
    late = 2 * prefetch - 1  # the last task of worker 1 at the start: until it is fetched, worker 0 has brought nothing
    yield _dispatched(chance, chance.randint(9, 14), 2, prefetch, waits=0, until=late)
    length = chance.randint(6, 11)
    yield _dispatched(chance, length, 3, 2, unreadable=_some(chance, length))
    yield Question("when_it_ends", {"persistent_workers": chance.random() < 0.5, "num_workers": 2})
    yield Question("receives", {})
    for program in ("received_before", "not_all_bring_batches"):
        yield Question(program, {"num_workers": 2})


def _in_any_order(chance: random.Random) -> Iterator[Question]:
    workers, prefetch = chance.randint(2, 3), chance.randint(1, 3)
    args = {"num_workers": workers, "prefetch_factor": prefetch}
    yield Question("out_of_order", {"length": workers * prefetch + chance.randint(2, 8), **args})
    length = chance.randint(6, 12)
    yield Question("any_epochs", {"length": length, "unreadable": _some(chance, length), "lengths": [None, None]})
    yield Question("choices_by_room", {})
    yield Question("when_it_ends", {"persistent_workers": chance.random() < 0.5, "num_workers": 2, "in_order": False})
    yield Question("not_all_bring_batches", {"in_order": False})


def _ends_of_streams(chance: random.Random) -> Iterator[Question]:
    yield _streams(chance, [None])
    yield _streams(chance, [None, chance.randint(1, 2), None])
    lengths = [chance.randint(1, 5) for _ in range(3)]
    yield Question("restarts", {"lengths": lengths, "batch_size": chance.randint(2, 4)})
    yield from _loaders(chance, 1)


def _pins(chance: random.Random) -> Iterator[Question]:
    length = chance.randint(4, 8)
    yield Question("pinned", {"length": length, "unreadable": _some(chance, length), "epochs": 1})
    yield Question("pinned", {"length": length, "unreadable": [], "epochs": 2, "persistent_workers": True})
    yield Question("passed_on", {})


def _handshakes(chance: random.Random) -> Iterator[Question]:
    for states in (*chance.sample(("AAA", "EAA", "AEA", "EEE", "AAE"), 3), chance.choice(("DAA", "ADA", "EED"))):
        old = [chance.choices(("batch", "error", "end", "resumed"), k=chance.randint(0, 4)) for _ in range(3)]
        order = chance.sample(range(3), 3)
        raises = chance.choice((None, None, 0, 1))
        args = {"states": states, "old": old, "order": order, "timeout": chance.choice((0, 7.5)), "raises_at": raises}
        yield Question("shaken", args)
    lengths = [chance.randint(1, 4), None, chance.randint(0, 3), None]
    yield Question("epochs", {"length": chance.randint(6, 11), "unreadable": [], "lengths": lengths})
    yield _streams(chance, [1, None])


def _deaths(chance: random.Random) -> Iterator[Question]:
    for lost in (True, False) * 12:
        states = [chance.choice("AEed") for _ in range(3)]
        states[chance.randrange(3)] = "a" if lost else "A"
        args = {"states": "".join(states), "exitcode": chance.choice((-9, 0, 1))}
        pin = chance.choice((None, True)) if lost else chance.choice((None, True, False))
        yield Question("health", {**args, "pin": pin, "ended": None})
        number = next(k for k, each in enumerate(states) if each in "aAE") if not lost else states.index("a")
        if not states[number].isupper():
            yield Question("health", {**args, "pin": None, "ended": number})
    workers = chance.randint(2, 3)
    yield Question("struck", {"number": chance.randrange(workers), "num_workers": workers})
    yield _streams(chance, [None])


def _shutdowns(chance: random.Random) -> Iterator[Question]:
    for own in (*(True,) * 5, False):
        waits = [round(chance.choice((0.2, 1.0, 3.0)) * (1 + chance.random()), 1) for _ in range(chance.randint(2, 5))]
        pin_takes = chance.choice((0.0, 2.5))
        yield Question("shut_down_alone", {"ends": waits, "pin_takes": pin_takes, "own": own})
    for error, step in itertools.product(("KeyboardInterrupt", "OSError", "SystemExit"), STEPS):
        yield Question("interrupted", {"ends": [0.1, 0.2], "step": step, "error": error})
    length = chance.randint(6, 11)
    yield Question("ends", {"length": length, "taken": length, "num_workers": 2})
    yield Question("ends", {"length": length, "taken": chance.randint(0, 4), "num_workers": 2, "pin_memory": "host"})


def _queues(chance: random.Random) -> Iterator[Question]:
    for read_before in (False, True):
        args = {"count": chance.randint(5, 12), "size": chance.randint(20_000, 30_000), "read_before": read_before}
        yield Question("queue", args)
    yield Question("queue", {"count": 0, "size": 0, "read_before": False})
    yield from _loaders(chance, 1, transport="torch")


def _slots(chance: random.Random) -> Iterator[Question]:
    for _ in range(8):
        steps = _steps(chance)
        yield Question("slots", {"steps": steps, "most": slot_trials.MOST}, functools.partial(_replayed, steps))
    keeps, lengths = chance.randint(0, 3), [chance.randint(1, 3), chance.randint(5, 9)]
    yield Question("kept", {"keeps": keeps, "lengths": lengths})


def _steps(chance: random.Random) -> list[list[Any]]:
    """What may happen to the slots of a worker."""
    steps: list[list[Any]] = []
    granted: list[int] = []
    batches: list[int] = []
    count = 0
    for _ in range(40):
        choices = ["grant", "grant", *["batch", "unused"] * bool(granted), *["drop"] * 2 * bool(batches)]
        what = chance.choice(choices)
        if what == "grant":
            granted.append(count)
            count += 1
            steps.append(["grant"])
            continue
        one = (batches if what == "drop" else granted).pop(
            chance.randrange(len(batches if what == "drop" else granted))
        )
        batches += [one] * (what == "batch")
        steps.append([what, one])
    return [*steps, ["reclaim"], *[["grant"]] * (slot_trials.MOST + 2)]


class _Replayed(slot_trials.Table):
    """What must be true of the slots, told from what was granted where they are not in reach."""

    def __init__(self, found: list[Any]) -> None:
        self.found = iter(found)
        packer = SimpleNamespace(room=lambda *_: None, pack=lambda message: ([b""], message))
        unpacker = SimpleNamespace(grant=self._next, unpack=lambda _, message: message, reclaim=lambda: None)
        super().__init__(packer, unpacker)

    def _next(self, epoch_id: int, task_id: int) -> tuple[int, bool]:
        slot, fresh = next(self.found)
        return NO_SLOT if slot == "none" else int(slot), bool(fresh)

    def _drop(self, task_id: int) -> None:
        intact = next(self.found) is True
        self.batches[task_id] = torch.full((4,), task_id if intact else -1)
        super()._drop(task_id)


def _replayed(steps: list[list[Any]], found: Any) -> tuple[str, str] | None:
    try:
        table = _Replayed(found)
        table.run(", ".join(" ".join(map(str, step)) for step in steps))
    except (StopIteration, TypeError, ValueError) as error:
        return f"{found!r}, which cannot be read: {error!r}", "what each step grants"
    return None if table.mistake is None else (table.mistake.got, table.mistake.expected)


def _names(chance: random.Random) -> Iterator[Question]:
    def judge(found: Any) -> tuple[str, str] | None:
        return None if found == bugs.TRACES else (f"{found!r}", "the names of all the bugs")

    yield Question("named", {}, judge)


def _trains(chance: random.Random) -> Iterator[Question]:
    yield Question("trained", {}, beside=far_storage.served)


ASKED: dict[int, Callable[[random.Random], Iterator[Question]]] = {
    1: _fetches,
    2: _collations,
    3: _key_lists,
    4: _shares,
    5: _sends,
    6: _worker_loops,
    7: _in_order,
    8: _in_any_order,
    9: _ends_of_streams,
    10: _pins,
    11: _handshakes,
    12: _deaths,
    13: _shutdowns,
    14: _queues,
    15: _names,
    16: _slots,
    17: _trains,
}
