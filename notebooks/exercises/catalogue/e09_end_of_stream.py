"""Exercise 9: the end of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import minidl
from minidl.data.fetch import IterableFetcher
from minidl.events import Kind
from notebooks.exercises.answers import Answer
from notebooks.exercises.catalogue.stream_rules import (
    ALL_HAVE_ENDED,
    ASKS_NO_MORE,
    NO_ENTRY,
    NOTHING_THROWN_AWAY,
    STAYS,
    TOLD,
    WAITS_FOR_NOTHING,
    WHAT_AN_END_BRINGS,
    ends,
)
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failing import raised, tell
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.probes import Attempt, attempt, real
from notebooks.exercises.programs import Stream, elsewhere, load, waiting_for_ever
from notebooks.exercises.protocol import ALWAYS, Broken, Run, gives, play

CAUSES = {
    "the first worker's end ends all": "One worker's stream has ended, and the epoch was over. The streams of the "
    "others may be longer: only that worker is out of the game, and main goes on until nothing is left to wait for.",
    "never skips the ended worker's tasks": "Main waits for a task that was sent to a worker whose stream has ended: "
    "it answers the first of these with a StreamEnd, and the rest not at all. `_rcvd_idx` has to pass over all of "
    "them.",
    "skips what will come": "A task was passed over whose worker is still at work. Only those of a worker that is not "
    "ACTIVE any more will never come.",
    "skips what has come": "A batch was in the reorder buffer when its worker's stream ended, and was thrown away. "
    "A batch that has `.arrived` needs nothing of its worker any more: it waits for its turn.",
    "leaves the task's entry": "A task that was passed over still has its entry in `_task_info`: with every stream "
    "that ends there would be more of them.",
    "the ended worker counts as active": "The worker was told to end, and when it did it was taken for dead: its entry "
    "in `_workers_status` says ACTIVE. Which state is there for a worker whose stream has ended?",
    "the worker is not told": "Nothing more will be sent to this worker, and it does not know: its process, with its "
    "copy of the dataset, stays until the end of the epoch. `tell_to_stop` lets it go.",
    "stops a persistent worker": "With persistent workers the next epoch needs it again: its stream has ended, and not "
    "its work.",
    "its task is nobody's": "A task was answered with the end of a stream, and no yield will bring the next one in its "
    "place. The other workers would have less to do from here on: send one task when a stream ends.",
    "fetches after the end": "A batch came out short, so the stream has ended, and the next `fetch` asked it again. It "
    "may raise then, or start anew: remember in `self.ended` that it has ended.",
    "loses the short batch": "The stream ended in the middle of a batch, and the StopIteration took the samples with "
    "it that were there already. Where is it caught?",
    "an empty batch at the end": "No sample is left, and an empty list is a batch like any other: main would be given "
    "one empty batch after the other. Raise StopIteration.",
    "ignores drop_last": "With `self.drop_last` a batch that is not whole is not wanted: raise StopIteration.",
    "opens the stream anew": "A loop over `self.dataset_iter`, or a slice of it, calls iter() on it first. This "
    "dataset is its own iterator, and begins anew there. Ask with next().",
    "one sample in a list": "Without automatic batching a task is one sample, and is returned as it is.",
    "another number of samples": "Of `keys` only their number matters: so many samples are taken off the stream.",
}


class Numbers(minidl.IterableDataset[int]):
    """Its own iterator: 10, 11, ... so many. iter() begins anew; who asks after the end is told so."""

    def __init__(self, length: int) -> None:
        self.length, self.given, self.over = length, 0, False

    def __iter__(self) -> Iterator[int]:
        self.given, self.over = 0, False
        return self

    def __next__(self) -> int:
        if self.over:
            raise RuntimeError("this stream has ended, and was asked again")
        elsewhere()
        self.over = self.given == self.length
        if self.over:
            raise StopIteration
        self.given += 1
        return 9 + self.given


def fetches(fetch: Any, dataset: Any, *tasks: Any, batching: bool = True, drop_last: bool = False) -> list[Any]:
    """What comes of each of these keys: samples, or "StopIteration"."""
    fetcher = IterableFetcher(dataset, batching, list, drop_last)
    found: list[Any] = []
    for keys in tasks:
        try:
            found.append(fetch(fetcher, keys))
        except StopIteration:
            found.append("StopIteration")
    return found


def fetching(answer: Answer) -> Finding | None:
    """The fetcher on its own: one call after the other."""
    fetch, end = answer.function("fetch"), "StopIteration"

    def tried(call: str, dataset: Any, *tasks: Any, **options: bool) -> Attempt:
        return attempt(answer, call, lambda: fetches(fetch, dataset, *tasks, **options))

    def wrong(one: Attempt, mistake: str, expected: Any) -> Finding:
        return one.finding(mistake, str(expected), CAUSES[mistake])

    one = tried("fetch([0, 1]) of a stream 10, 11, 12, 13, 14", iter(range(10, 15)), [0, 1])
    if one.value != [[10, 11]]:
        return wrong(one, "another number of samples", [[10, 11]])
    one = tried("fetch([0, 1]), fetch([2, 3]) of a stream that is its own iterator", Numbers(5), [0, 1], [2, 3])
    if one.value == [[10, 11], [10, 11]]:
        return wrong(one, "opens the stream anew", [[10, 11], [12, 13]])
    one = tried("fetch([0, 1]), fetch([2, 3]) of a stream 10, 11, 12", iter(range(10, 13)), [0, 1], [2, 3])
    if one.value != [[10, 11], [12]]:
        return wrong(one, "loses the short batch", [[10, 11], [12]])
    one = tried("fetch([0, 1]), fetch([2, 3]) of a stream 10, 11", iter(range(10, 12)), [0, 1], [2, 3])
    if one.value != [[10, 11], end]:
        return wrong(one, "an empty batch at the end", [[10, 11], end])
    call = "fetch([0, 1]), fetch([2, 3]) of a stream 10, 11, 12 with drop_last"
    one = tried(call, iter(range(10, 13)), [0, 1], [2, 3], drop_last=True)
    if one.value != [[10, 11], end]:
        return wrong(one, "ignores drop_last", [[10, 11], end])
    one = tried("fetch(0), fetch(1) of a stream 10, without automatic batching", iter([10]), 0, 1, batching=False)
    if one.value != [10, end]:
        return wrong(one, "one sample in a list", [10, end])
    call = "fetch([0, 1]), fetch([2, 3]), fetch([4, 5]) of a stream 10, 11, 12"
    one = tried(call, Numbers(3), [0, 1], [2, 3], [4, 5])
    if one.value != [[10, 11], [12], end]:
        finding = wrong(one, "fetches after the end", [[10, 11], [12], end])
        with answer.at_work():
            finding.broken = play(asking, [ASKS_NO_MORE], chance=0)
        return finding
    return None


@waiting_for_ever()
def asking() -> list[Any]:
    return load(Numbers(3), num_workers=1, batch_size=2)


@waiting_for_ever()
def uneven() -> list[Any]:
    return load(Stream(4, 1), num_workers=2, prefetch_factor=2)


@waiting_for_ever()
def epochs() -> list[Any]:
    return load(Stream(1, 3), epochs=2, num_workers=2, prefetch_factor=2, persistent_workers=True)


def grade(answer: Answer) -> Finding | None:
    finding = fetching(answer)
    if finding is not None:
        return finding
    streams = "a loader with two workers, whose streams have"
    for program, words, expected, chance in (
        (uneven, f"{streams} 4 samples and 1", [[0], [1], [2], [4], [6]], 100),
        (epochs, f"{streams} 1 sample and 3: two epochs, persistent workers", [[0], [1], [3], [5]] * 2, 50),
    ):
        beat(words)
        rules = [ALL_HAVE_ENDED, NOTHING_THROWN_AWAY, WHAT_AN_END_BRINGS, STAYS] if program is epochs else []
        rules = rules or [ALL_HAVE_ENDED, NOTHING_THROWN_AWAY, TOLD, WHAT_AN_END_BRINGS]
        with answer.at_work():
            broken = play(
                program, [*rules, WAITS_FOR_NOTHING, *ALWAYS, NO_ENTRY, gives(expected)], chance=chance, most_steps=4000
            )
        if broken is not None:
            return tell(answer, broken, _mistake(answer, broken), words, CAUSES)
    return real(answer, uneven, [[0], [1], [2], [4], [6]])


def _mistake(answer: Answer, broken: Broken) -> str:
    """Its name, from the run."""
    assert broken.outcome is not None
    run = Run(broken.outcome)
    if len(run.of(Kind.WORKER_DIED)) and broken.rule != STAYS.name:
        return "the ended worker counts as active"
    if broken.rule == WAITS_FOR_NOTHING.name:
        broken.waits = ""  # it tells of the first task that is not answered, and main may wait for one that is
        return "never skips the ended worker's tasks"
    own = raised(answer, broken)  # else main misses the entry of a task that was passed over
    if (own is None and isinstance(broken.outcome.error, KeyError)) or (
        broken.rule == ALL_HAVE_ENDED.name and not ends(run, broken.breach.events[0])
    ):
        return "skips what will come"
    names = {
        ALL_HAVE_ENDED: "the first worker's end ends all",
        NOTHING_THROWN_AWAY: "skips what has come",
        NO_ENTRY: "leaves the task's entry",
        TOLD: "the worker is not told",
        STAYS: "stops a persistent worker",
        WHAT_AN_END_BRINGS: "its task is nobody's",
    }
    return {rule.name: name for rule, name in names.items()}.get(broken.rule, broken.rule)


EXERCISE = Exercise(
    number=9,
    name="end_of_stream",
    title="end of stream",
    references=(
        "minidl.data.fetch:IterableFetcher.fetch",
        "minidl.parallel:ParallelIterator._worker_exhausted",
        "minidl.parallel:ParallelIterator._skip_unfulfilled",
    ),
    task="""
    An iterable dataset says with StopIteration that it has no more samples, and each worker has a stream of its own,
    which ends at its own time. Write what happens then. In the worker, `fetch` takes as many samples off the stream
    as there are keys. The last batch may be short; once none is left (or too few, with `drop_last`) it raises
    StopIteration, and the worker sends a StreamEnd in the batch's place. After that it answers no task of this epoch
    any more.

    In main `_worker_exhausted` is called when the StreamEnd comes in: the worker is EXHAUSTED from now on, is told to
    stop unless the workers are persistent, and one task is sent in the place of the one that brought no batch.
    `_skip_unfulfilled` is called before main waits: it moves `_rcvd_idx` past the tasks that will never come, those
    with a worker that is not ACTIVE any more, and takes their entries out of `_task_info`. When `_rcvd_idx` has come
    to `_send_idx`, the epoch is over; the loader sees to that.

    `in_order=False` is exercise 8: here every loader is in order, so each task from `_rcvd_idx` to `_send_idx` has
    its entry. (The calls of `emit` may be left out.)
    """,
    legend={
        "keys": "[12, 13, 14, 15] with automatic batching; one key, 12, without",
        "self.dataset_iter": "the stream, in the fetcher: next(self.dataset_iter) is the next sample",
        "self.auto_collation": "True with automatic batching; without it `fetch` returns one sample, in no list",
        "self.drop_last": "True: a batch that is not whole is dropped",
        "self.ended": "False: remember here that the stream has ended",
        "self._workers_status": "[WorkerState.ACTIVE, WorkerState.EXHAUSTED]: of each worker, in main",
        "self._persistent_workers": "True: the workers stay for the next epoch",
        "tell_to_stop(self, worker_id)": "tells one worker to end",
        "self._try_put_index()": "sends one task, if there is one and somebody to do it",
        "self._rcvd_idx": "4: the next task to be yielded; self._send_idx is 7, the next to be sent",
        "self._task_info": "{4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: .arrived says whether its batch is there",
    },
    hints=(
        "Which tasks can main not expect any more, and how does it know? What if the batch of one of them is there "
        "already?",
        "`fetch`: collect with next() in a loop over the keys, and catch the StopIteration inside of it: what has been "
        "collected is the short batch. `_skip_unfulfilled`: go on from `_rcvd_idx` until there is a task that is "
        "worth waiting for, or has come.",
        "`fetch`: if self.ended, raise StopIteration; after the loop raise it too if there are no samples, or if "
        "self.ended and self.drop_last. `_worker_exhausted`: status, tell_to_stop, self._try_put_index(). "
        "`_skip_unfulfilled`: while self._rcvd_idx < self._send_idx: return if the entry .arrived or its worker is "
        "ACTIVE, else delete it and add 1 to _rcvd_idx.",
    ),
    grade=grade,
    notebook="07-iterable-datasets.ipynb",
    protocol=True,
    forbidden=("_IterableDatasetFetcher", "_utils"),
)
