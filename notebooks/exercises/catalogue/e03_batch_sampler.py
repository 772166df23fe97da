"""Exercise 3: keys to tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import Attempt, attempt, first_finding, with_real_processes
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.programs import Keys, load

MOST = 6  # lists taken from an iterator that may never end

CAUSES = {
    "one reused list": "The lists were right when they were yielded, but have changed since. Main keeps a task's "
    "keys until its batch is yielded, and a feeder thread may pickle them after the next list was begun. Each task "
    "needs a list of its own.",
    "loses the tail": "The keys run out before the last list is full. Without `drop_last` the remaining keys make a "
    "shorter list. What happens to the keys you have collected when the sampler ends?",
    "an empty list": "The keys divide evenly, so nothing is left at the end; yet an empty list was yielded. A task "
    "without keys would be a batch without samples.",
    "drops a full last batch": "`drop_last` drops the last list only if it is shorter than the others. This one is "
    "full. How do you find out that a list is the last one, and that it is short?",
    "keeps the tail": "With `drop_last`, drop a list that is shorter than the others.",
    "begins again": "The same keys come again and again: each `for` or `iter()` starts the sampler anew. Get one "
    "iterator from it, and keep using that.",
    "not lists": "Each task's keys must be a list, however many there are.",
    "no iterator": "Python calls `__iter__` to get an iterator. With a `yield` in it, the call returns one; without, "
    "return one yourself, such as `iter(...)` of a list.",
    "StopIteration escapes": "`next()` raises StopIteration when the iterator has ended. Inside a generator Python "
    "turns that into a RuntimeError: catch it, and end with a `return`.",
    "raises": "An exception came instead of a list of keys. Which case have you not thought of?",
    "batches": "Each list must have `batch_size` keys, in the sampler's order.",
    "takes a key for the end": "A key can be anything, even None: an iterable dataset's sampler draws nothing else. "
    "No key can mark the end of the sampler.",
    "needs more than iteration": "All you know about a sampler is that you can iterate over it. It may have no "
    "length, and need not be a sequence.",
    "reads ahead": "More keys were taken than the requested lists needed. A sampler may never end (an iterable "
    "dataset's does not), and may draw random numbers for each key.",
    "the second epoch": "Every epoch makes a new iterator from the same `BatchSampler`. Something is left over from "
    "the first one: store nothing in `self`.",
}


class Endless:
    """A sampler that can only be iterated over, has more keys than are asked for, and counts those that are taken."""

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
    """The lists it yields, as they are afterwards; and as they were when they were yielded."""
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
        found = first_finding(each for check in (_tail, _no_tail, _any_sampler, _again) for each in check(answer))
    return found or with_real_processes(answer, _program, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])


def _program() -> list[list[int]]:
    return load(Keys(10), batch_size=4, num_workers=2)


EXERCISE = Exercise(
    number=3,
    name="batch_sampler",
    title="BatchSampler.__iter__",
    references=("minidl.data.sampler:BatchSampler.__iter__",),
    task="""
    A sampler yields one key at a time. A task has the keys of a whole batch, so `BatchSampler` takes keys from a
    sampler, `batch_size` at a time, and yields them as lists. Write its `__iter__`. The loader iterates over it anew in
    every epoch, and asks for the next list whenever it sends a task.

    If the keys do not divide evenly, the last list is shorter; with `drop_last` it is dropped. All you know about the
    sampler is that you can iterate over it. It may never end, so take no more keys than the current list needs. Main
    keeps each list until its batch is yielded.
    """,
    legend={
        "self.sampler": "iter(self.sampler) yields keys: 12, 13, 14, ... A key can be anything, even None",
        "self.batch_size": "4: keys in each list",
        "self.drop_last": "False: a shorter last list is yielded; True: it is not",
    },
    hints=(
        "Collect keys until you have enough. When is a list yielded in the middle, and when at the end? Who owns the "
        "list after that?",
        "`itertools.islice(source, 4)` takes up to four items from an iterator, and leaves the rest in it. Use one "
        "iterator `source` for the whole epoch.",
        "source = iter(self.sampler). Repeat: keys = list(itertools.islice(source, self.batch_size)). If it is "
        "empty, stop; if it has fewer than batch_size keys and self.drop_last, stop; otherwise yield keys.",
    ),
    grade=grade,
    notebook="02-datasets-samplers-fetchers.ipynb",
    forbidden=("BatchSampler",),
)
