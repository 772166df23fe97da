"""Exercise 3: keys to tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from notebooks.exercises.answers import Answer
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.probes import Attempt, attempt, first, real
from notebooks.exercises.programs import Keys, load

MOST = 6  # lists that are taken of an iterator that may never end

CAUSES = {
    "one reused list": "The lists were right when they were yielded, and have changed since. A task's keys stay with "
    "main until its batch is yielded, and a feeder thread pickles them some time after the next list is begun: each "
    "task needs a list of its own.",
    "loses the tail": "The keys end before the last list is full. Without `drop_last` those that are left make a "
    "shorter list. What happens with what you have collected when the sampler ends?",
    "an empty list": "The keys divide evenly, so that nothing is left at the end; an empty list was yielded all the "
    "same. A task without keys is a batch without samples.",
    "drops a full last batch": "`drop_last` leaves out a last list that is shorter than the others. This one is full: "
    "how do you tell that it is the last, and that it is short?",
    "keeps the tail": "With `drop_last` a list that is shorter than the others is left out.",
    "begins again": "The same keys come again and again. A `for`, or `iter()`, begins anew with the sampler each "
    "time: ask it once for an iterator, and go on with that one.",
    "not lists": "Each task's keys are a list, whatever the number of them.",
    "no iterator": "Python calls `__iter__` to get an iterator. With a `yield` in it, calling it returns one; without, "
    "return one yourself: `iter(...)` of a list, say.",
    "StopIteration escapes": "`next()` of an iterator that has ended raises StopIteration. Within a generator that is "
    "a mistake, which Python tells as a RuntimeError: catch it there, and end with a `return`.",
    "raises": "An exception in the place of a list of keys. Which case is it that you have not thought of?",
    "batches": "`batch_size` keys a list, in the sampler's order.",
    "takes a key for the end": "A key may be anything, None too: an iterable dataset's sampler draws nothing else. "
    "That the sampler has ended can't be seen from a key.",
    "needs more than iteration": "All that is known of a sampler is that it can be iterated over: it need not have a "
    "length, or be a sequence.",
    "reads ahead": "More keys were taken than are in the lists that were asked for. A sampler may have no end (that "
    "of an iterable dataset has none), and may draw random numbers for each key.",
    "the second epoch": "Every epoch makes a new iterator of the same `BatchSampler`. Something of the first one is "
    "left: keep nothing in `self`.",
}


class Endless:
    """A sampler that is nothing but iterable, has far more keys than are asked for, and counts those that are taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        for key in range(1000):
            self.taken += 1
            yield key


def _finding(tried: Attempt, mistake: str, expected: str) -> Finding:
    error = str(tried.error)
    if isinstance(tried.error, TypeError) and "non-iterator" in error:
        mistake = "no iterator"
    elif isinstance(tried.error, RuntimeError) and "StopIteration" in error:
        mistake = "StopIteration escapes"
    elif tried.error is not None and mistake == "batches":
        mistake = "raises"
    return tried.finding(mistake, expected, CAUSES[mistake])


def _lists(answer: Answer, sampler: Iterable[Any], size: int, drop_last: bool, most: int = MOST) -> tuple[Attempt, Any]:
    """What it yields, as it is afterwards; and as it was when it was yielded."""
    from minidl.data.sampler import BatchSampler

    at_once: list[Any] = []

    def take() -> list[Any]:
        kept = []
        for keys in itertools.islice(BatchSampler(sampler, size, drop_last), most):
            at_once.append(list(keys) if isinstance(keys, list) else keys)
            kept.append(keys)
        return kept

    shown = sampler if isinstance(sampler, (range, list)) else "sampler"
    some = f", the first {most}" if most < MOST else ""
    return attempt(
        answer, f"list(BatchSampler({shown}, batch_size={size}, drop_last={drop_last})){some}", take
    ), at_once


def _tail(answer: Answer) -> Iterator[Finding]:
    tried, at_once = _lists(answer, range(10), 4, False)
    full, wanted = [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    if tried.value == wanted:
        return
    mistake = "batches"
    if tried.error is None and (at_once == wanted or len({*map(id, tried.value)}) < len(tried.value)):
        mistake = "one reused list"
    elif tried.value == full:
        mistake = "loses the tail"
    elif len(at_once) == MOST and at_once[0] == at_once[1]:
        mistake = "begins again"
    elif tried.error is None and [*map(list, filter(_many, at_once))] == wanted:
        mistake = "not lists"
    yield _finding(tried, mistake, str(wanted))


def _many(keys: Any) -> bool:
    return isinstance(keys, (list, tuple, range))


def _no_tail(answer: Answer) -> Iterator[Finding]:
    wanted = [[0, 1, 2, 3], [4, 5, 6, 7]]
    for length, drop_last in ((8, False), (8, True), (10, True)):
        tried, _ = _lists(answer, range(length), 4, drop_last)
        if tried.value == wanted:
            continue
        mistake = "batches"
        if tried.value == [*wanted, []]:
            mistake = "an empty list"
        elif tried.value == wanted[:1]:
            mistake = "drops a full last batch"
        elif tried.value == [*wanted, [8, 9]]:
            mistake = "keeps the tail"
        yield _finding(tried, mistake, str(wanted))
    for length, drop_last, few in ((0, False, []), (3, False, [[0, 1, 2]]), (3, True, [])):
        tried, _ = _lists(answer, range(length), 4, drop_last)
        if tried.value != few:
            mistake = "an empty list" if tried.value == [[]] else "keeps the tail" if drop_last else "batches"
            yield _finding(tried, mistake, str(few))


def _any_sampler(answer: Answer) -> Iterator[Finding]:
    tried, _ = _lists(answer, [None] * 5, 2, False)
    if tried.value != [[None, None], [None, None], [None]]:
        yield _finding(tried, "takes a key for the end", "[[None, None], [None, None], [None]]")
    sampler = Endless()
    tried, _ = _lists(answer, sampler, 4, False, 2)
    if tried.value != [[0, 1, 2, 3], [4, 5, 6, 7]]:
        yield _finding(tried, "needs more than iteration", "[[0, 1, 2, 3], [4, 5, 6, 7]]")
    if sampler.taken > 8:
        tried.got += f", and {sampler.taken} keys were taken"
        yield _finding(tried, "reads ahead", "two lists of 4, for which 8 keys are taken")


def _again(answer: Answer) -> Iterator[Finding]:
    from minidl.data.sampler import BatchSampler

    batches = BatchSampler(range(10), 4, True)
    tried = attempt(answer, "two epochs of BatchSampler(range(10), 4, True)", lambda: [list(batches), list(batches)])
    wanted = [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2
    if tried.value != wanted:
        yield _finding(tried, "the second epoch", str(wanted))


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        found = first(each for check in (_tail, _no_tail, _any_sampler, _again) for each in check(answer))
    return found or real(answer, _program, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])


def _program() -> list[list[int]]:
    return load(Keys(10), batch_size=4, num_workers=2)


EXERCISE = Exercise(
    number=3,
    name="batch_sampler",
    title="BatchSampler.__iter__",
    references=("minidl.data.sampler:BatchSampler.__iter__",),
    task="""
    A sampler says which sample comes next, one key at a time. A task has the keys of a whole batch: `BatchSampler`
    takes the keys of a sampler, `batch_size` at a time, and yields lists of them. Write its `__iter__`. The loader
    iterates over it anew in every epoch, and asks for the next list whenever it sends a task.

    If the keys do not divide evenly, the last list is shorter, or, with `drop_last`, left out. Of the sampler
    nothing is known but that it can be iterated over; it may have no end, so that no more keys are taken than the
    list at hand needs. Main keeps each list until its batch is yielded.
    """,
    legend={
        "self.sampler": "iter(self.sampler) yields keys: 12, 13, 14, ... A key can be anything, None too",
        "self.batch_size": "4: keys in each list",
        "self.drop_last": "False: a shorter last list is yielded; True: it is not",
    },
    hints=(
        "Collect keys until you have enough. When is a list yielded in the middle, and when at the end? Whose is the "
        "list after that?",
        "`itertools.islice(source, 4)` takes up to four items of an iterator, and leaves the others in it. "
        "`source` has to be one iterator for the whole epoch.",
        "source = iter(self.sampler). Again and again: keys = list(itertools.islice(source, self.batch_size)); none: "
        "it is over; fewer than batch_size and self.drop_last: it is over; else yield keys.",
    ),
    grade=grade,
    notebook="02-datasets-samplers-fetchers.ipynb",
    forbidden=("BatchSampler",),
)
