"""Exercise 1: keys to samples."""

from __future__ import annotations

from typing import Any

from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import attempt, with_real_processes
from notebooks.exercises.exercise import Exercise, Finding


class Squares:
    """A map-style dataset that records the keys it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 8

    def __getitem__(self, key: int) -> int:
        if not 0 <= key < 8:
            raise IndexError(key)
        self.asked.append(key)
        return key * key


class AllAtOnce(Squares):
    """A dataset that can fetch many samples in one call."""

    def __getitems__(self, keys: list[int]) -> list[int]:
        return [key * key for key in keys]


class Taken(AllAtOnce):
    """A dataset that inherits the method and disables it."""

    __getitems__ = None  # type: ignore[assignment]


def grade(answer: Answer) -> Finding | None:
    from minidl.data.fetch import MapFetcher

    def fetch(dataset: Any, keys: Any, auto_collation: bool = True) -> Any:
        return answer.function()(MapFetcher(dataset, auto_collation, list, False), keys)

    with answer.at_work():
        one = attempt(answer, "fetch(3), without automatic batching", lambda: fetch(Squares(), 3, False))
        if one.value == [9]:
            cause = (
                "Without automatic batching (`self.auto_collation` is False) a task is one key: return its sample, "
                "not in a list."
            )
            return one.finding("one sample in a list", "9", cause)
        if one.value != 9:
            return one.finding(
                "no sample for a single key", "9", "Without automatic batching `keys` is one key: return its sample."
            )
        several = attempt(answer, "fetch([3, 1, 2])", lambda: fetch(Squares(), [3, 1, 2]))
        if several.value in ([0, 1, 4], list(range(8)), [key * key for key in range(8)]):
            cause = "Return the samples of `keys`, in their order: iterate over the keys, not the dataset."
            return several.finding("the dataset, not the keys", "[9, 1, 4]", cause)
        if several.value != [9, 1, 4]:
            return several.finding("several samples", "[9, 1, 4]", "Return a list, one sample per key.")
        dataset = AllAtOnce()
        whole = attempt(answer, "fetch([3, 1]) of a dataset with __getitems__", lambda: fetch(dataset, [3, 1]))
        if whole.value == [9, 1] and dataset.asked:
            cause = (
                "The dataset has `__getitems__`, which takes all keys at once (one database query instead of one per "
                "key, for example). You asked for each key separately."
            )
            return whole.finding("ignores __getitems__", "one call of __getitems__, none of __getitem__", cause)
        if whole.value != [9, 1]:
            return whole.finding(
                "ignores __getitems__", "[9, 1]", "Call `self.dataset.__getitems__(keys)` if the dataset has it."
            )
        taken = attempt(answer, "fetch([3, 1]) where __getitems__ is None", lambda: fetch(Taken(), [3, 1]))
        if taken.value != [9, 1]:
            cause = "A subclass switches the method off by setting it to None. So look at its value, too."
            return taken.finding("__getitems__ is None", "[9, 1]", cause)
        return with_real_processes(answer, _program, [[0, 1, 4], [9, 16, 25], [36, 49]])


def _program() -> list[list[int]]:
    import minidl

    return list(minidl.DataLoader(Squares(), batch_size=3, num_workers=2, collate_fn=list))


EXERCISE = Exercise(
    number=1,
    name="map_fetcher",
    title="the map fetcher's fetch",
    references=("minidl.data.fetch:MapFetcher.fetch",),
    task="""
    A worker has a task: some keys. It asks its fetcher for their samples, then collates them. Write the fetcher for
    map-style datasets: `fetch(keys)` returns the samples of `keys`, not yet collated.

    With automatic batching a task has a list of keys, and `fetch` returns a list of samples. Without it
    (`batch_size=None`) a task has one key, and `fetch` returns its sample as it is. If the dataset has a method
    `__getitems__`, call it once with the whole list of keys; otherwise ask for the keys one by one. Whatever the
    dataset raises goes on to the caller as it is; so does a StopIteration, which must not cut the list short.
    """,
    legend={
        "keys": "[12, 13, 14, 15] with automatic batching; 12 without. It is the sampler's: do not change the list",
        "self.dataset": "dataset[12] is a sample; dataset.__getitems__([12, 13]), if there is such a "
        "method and not just None of that name, is a list of samples",
        "self.auto_collation": "True with automatic batching",
    },
    hints=(
        "There are three ways to ask a dataset. What decides between one sample and a list of them?",
        "`getattr(self.dataset, '__getitems__', None)` is None if there is no such method, and also if a subclass "
        "has set it to None.",
        "First: if not self.auto_collation, return self.dataset[keys]. Then: if there is a __getitems__, return what "
        "it returns for the keys. Otherwise return a list with self.dataset[key] for each key.",
    ),
    grade=grade,
    notebook="02-datasets-samplers-fetchers.ipynb",
    forbidden=("_MapDatasetFetcher", "_utils"),
)
