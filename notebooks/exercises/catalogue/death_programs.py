"""Programs of exercise 12, in which workers end or are killed, and what the loader raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import minidl
from minidl import deaths, signals
from minidl.world.simulated import machine as machines
from minidl.world.simulated import sleep
from notebooks.exercises.programs import Keys, Stream, let_others_run, load

OPTIONS: dict[str, Any] = {"batch_size": 1, "collate_fn": list, "num_workers": 2, "prefetch_factor": 2}


class Slow(Keys):
    """Sample 2 takes longer than main waits before it checks that all workers are alive."""

    def __getitem__(self, key: int) -> int:
        if key == 2 and machines.is_running():
            sleep(12.0)
        return super().__getitem__(key)


class SlowStream(Stream):
    """Worker 1's second sample is slow; worker 0 has ended by then."""

    def __iter__(self) -> Iterator[int]:
        for sample in super().__iter__():
            if sample == 3 and machines.is_running():
                sleep(12.0)
            yield sample


class Fatal(list[int]):
    """A batch that ends the thread that pins it."""

    def pin_memory(self) -> Any:
        raise SystemExit


def error_of(iterator: Any, ask: Callable[[], Any]) -> str:
    """Whom an error names, and whether the next next() raises it again: "worker 1, and again"."""
    try:
        ask()
    except RuntimeError as error:
        who = _named(iterator, str(error))
        try:
            batch = next(iterator)
        except (RuntimeError, StopIteration) as again:
            return f"{who}, and again" if str(again) == str(error) else f"{who}, and then {again!r}"
        return f"{who}, and then batch {batch}"
    return "nothing"


def _named(iterator: Any, text: str) -> str:
    workers = enumerate(iterator._workers)
    named = [f"worker {k}" for k, each in workers if f"worker {k}" in text or f"pid {each.pid}" in text]
    return " and ".join(named) or ("the pin thread" if "pin" in text.lower() else f"nobody: {text}")


def finished() -> list[Any]:
    return sorted(load(Stream(1, 4), **OPTIONS))


def long_finished() -> list[Any]:
    return sorted(load(SlowStream(1, 3), **OPTIONS))


def slow() -> list[Any]:
    return load(Slow(4), **OPTIONS)


def hit() -> list[Any]:
    """The batches while a schedule kills workers; the last item is what the error names."""
    iterator: Any = iter(minidl.DataLoader(Keys(10), **OPTIONS))
    found: list[Any] = []

    def iterate() -> None:
        for batch in iterator:
            let_others_run()
            found.append(batch)

    said = error_of(iterator, iterate)
    return found if said == "nothing" else [*found, said]


def unnoticed(*numbers: int) -> str:
    """Workers have died and main has not noticed: what the health check raises."""
    iterator: Any = iter(minidl.DataLoader(Keys(20), **OPTIONS))
    next(iterator)
    signals.unwatch(iterator)  # the handler of SIGCHLD leaves the news to it
    for number in numbers:
        iterator._workers[number].kill()
        iterator._workers[number].join(5)
    return error_of(iterator, lambda: deaths.check_health(iterator))


def one_unnoticed() -> str:
    return unnoticed(1)


def both_unnoticed() -> str:
    return unnoticed(0, 1)


def unpinned() -> str:
    """The pin thread dies."""
    iterator: Any = iter(minidl.DataLoader(Keys(4), **{**OPTIONS, "collate_fn": Fatal}, pin_memory="host"))
    return error_of(iterator, lambda: next(iterator))


def next_epoch() -> list[Any]:
    """Worker 0 is killed after its stream has ended, which costs nothing; but then there is a second epoch. The last
    item is what its error names."""
    loader: Any = minidl.DataLoader(Stream(1, 4), **OPTIONS, persistent_workers=True)
    iterator = iter(loader)
    found = [next(iterator) for _ in range(3)]  # to get the third, main has learned that worker 0's stream has ended
    iterator._workers[0].kill()
    iterator._workers[0].join(5)
    return [*found, *iterator, error_of(iterator, lambda: iter(loader))]


def struck() -> str:
    """In both worlds: worker 1 is killed."""
    iterator: Any = iter(minidl.DataLoader(Keys(40), **OPTIONS))
    next(iterator)

    def go_on() -> None:
        iterator._workers[1].kill()
        iterator._workers[1].join(5)
        list(iterator)

    return error_of(iterator, go_on)
