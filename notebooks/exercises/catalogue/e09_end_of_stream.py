"""Exercise 9: the end of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import minidl
from minidl.data.fetch import IterableFetcher
from minidl.events import Kind
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import Attempt, attempt, with_real_processes
from notebooks.exercises.catalogue.stream_rules import (
    ALL_HAVE_ENDED,
    ASKS_NO_MORE,
    NO_ENTRY,
    NOT_TO_THE_ENDED,
    NOTHING_THROWN_AWAY,
    STAYS,
    TOLD,
    WAITS_FOR_NOTHING,
    WHAT_AN_END_BRINGS,
    ends,
)
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained, raised
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.programs import Stream, let_others_run, load, without_status_checks
from notebooks.exercises.protocol import ALWAYS, Broken, gives, play

CAUSES = {
    "the first worker's end ends all": "The epoch ended with the first stream that ended. The other workers' streams "
    "may be longer: only this worker is finished, and main goes on until there is nothing left to wait for.",
    "never skips the ended worker's tasks": "Main waits for a task of a worker whose stream has ended. Such a worker "
    "answers the first task with a StreamEnd, and the rest not at all. `_rcvd_idx` has to skip all of them.",
    "skips what will come": "A task was skipped whose worker is still at work. Only tasks of a worker that is no "
    "longer ACTIVE will never be answered.",
    "skips what has come": "A batch was in the reorder buffer when its worker's stream ended, and was thrown away. A "
    "batch that has `.arrived` no longer needs its worker: it only waits for its turn.",
    "leaves the task's entry": "A task that was skipped still has its entry in `_task_info`: every stream that ends "
    "would leave more of them.",
    "the ended worker counts as active": "The worker was told to end, and when it did, it was taken for dead: its "
    "entry in `_workers_status` says ACTIVE. Which state is there for a worker whose stream has ended?",
    "the worker is not told": "Nothing more will be sent to this worker, but it does not know that: its process, "
    "with its copy of the dataset, stays until the end of the epoch. `tell_to_stop` lets it go.",
    "stops a persistent worker": "With persistent workers the next epoch needs this worker again: only its stream "
    "has ended.",
    "no task in its place": "This task brought no batch, so no yield will send another task in its place, and the "
    "other workers would have less to do from here on. Send one task when a stream ends.",
    "fetches after the end": "The last batch was short, so the stream had ended, yet the next `fetch` asked it "
    "again. It may then raise, or start anew: remember the end in `self.ended`.",
    "loses the short batch": "The stream ended in the middle of a batch, and the StopIteration discarded the samples "
    "already collected. Where is it caught?",
    "an empty batch at the end": "No samples are left, and main would get one empty batch after another: raise "
    "StopIteration instead of returning an empty list.",
    "ignores drop_last": "With `self.drop_last`, drop an incomplete batch: raise StopIteration.",
    "opens the stream anew": "A loop over `self.dataset_iter`, or a slice of it, first calls iter() on it. This "
    "dataset is its own iterator, and starts anew. Use next().",
    "one sample in a list": "Without automatic batching a task is one sample: return it as it is.",
    "takes too many": "A sample was taken from the stream that is not in the batch. If the next one takes long to "
    "come, or raises, this batch must not wait for it, or be lost.",
    "sends to an ended worker": "The task in the place of the one that brought no batch went to the worker whose "
    "stream has ended, which will not answer it. Mark the worker first: then another one is chosen.",
    "another number of samples": "Only the number of `keys` matters: take that many samples from the stream.",
}


class Numbers(minidl.IterableDataset[int]):
    """Its own iterator: `length` numbers from 10. iter() starts anew; next() after the end raises RuntimeError."""

    def __init__(self, length: int) -> None:
        self.length, self.given, self.over = length, 0, False

    def __iter__(self) -> Iterator[int]:
        self.given, self.over = 0, False
        return self

    def __next__(self) -> int:
        if self.over:
            raise RuntimeError("this stream has ended, and was asked again")
        let_others_run()
        self.over = self.given == self.length
        if self.over:
            raise StopIteration
        self.given += 1
        return 9 + self.given


def fetches(fetch: Any, dataset: Any, *tasks: Any, batching: bool = True, drop_last: bool = False) -> list[Any]:
    """What `fetch` returns for each of these tasks' keys: samples, or "StopIteration"."""
    fetcher = IterableFetcher(dataset, batching, list, drop_last)
    found: list[Any] = []
    for keys in tasks:
        try:
            found.append(fetch(fetcher, keys))
        except StopIteration:
            found.append("StopIteration")
    return found


def fetching(answer: Answer) -> Finding | None:
    """The fetcher alone, call by call."""
    fetch, end = answer.function("fetch"), "StopIteration"

    def tried(call: str, dataset: Any, *tasks: Any, **options: bool) -> Attempt:
        return attempt(answer, call, lambda: fetches(fetch, dataset, *tasks, **options))

    def wrong(one: Attempt, mistake: str, expected: Any) -> Finding:
        return one.finding(mistake, str(expected), CAUSES[mistake])

    one = tried("fetch([0, 1]) of a stream 10, 11, 12, 13, 14", iter(range(10, 15)), [0, 1])
    if one.value != [[10, 11]]:
        return wrong(one, "another number of samples", [[10, 11]])
    stream = iter(range(10, 15))
    call = "fetch([0, 1]) of a stream 10, 11, 12, 13, 14, and then the stream's next sample"
    one = attempt(answer, call, lambda: [*fetches(fetch, stream, [0, 1]), next(stream)])
    if one.value != [[10, 11], 12]:
        return wrong(one, "takes too many", [[10, 11], 12])
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


@without_status_checks()
def asking() -> list[Any]:
    return load(Numbers(3), num_workers=1, batch_size=2)


@without_status_checks()
def uneven() -> list[Any]:
    return load(Stream(4, 1), num_workers=2, prefetch_factor=2)


@without_status_checks()
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
            rules += [NOT_TO_THE_ENDED, WAITS_FOR_NOTHING, *ALWAYS, NO_ENTRY, gives(expected)]
            broken = play(program, rules, chance=chance, most_steps=4000)
        if broken is not None:
            return explained(answer, broken, _mistake(answer, broken), words, CAUSES)
    return with_real_processes(answer, uneven, [[0], [1], [2], [4], [6]])


def _mistake(answer: Answer, broken: Broken) -> str:
    """The name of the mistake that the run shows."""
    run = broken.run
    if len(run.of(Kind.WORKER_DIED)) and broken.rule != STAYS.name:
        return "the ended worker counts as active"
    if broken.rule == WAITS_FOR_NOTHING.name:
        broken.waits = ""  # it names the first unanswered task, but main may be waiting for another
        return "never skips the ended worker's tasks"
    own = raised(answer, broken)  # without one, main misses the entry of a task that was skipped
    if (own is None and isinstance(run.outcome.error, KeyError)) or (
        broken.rule == ALL_HAVE_ENDED.name and not ends(run, broken.breach.events[0])
    ):
        return "skips what will come"
    names = {
        ALL_HAVE_ENDED: "the first worker's end ends all",
        NOTHING_THROWN_AWAY: "skips what has come",
        NO_ENTRY: "leaves the task's entry",
        NOT_TO_THE_ENDED: "sends to an ended worker",
        TOLD: "the worker is not told",
        STAYS: "stops a persistent worker",
        WHAT_AN_END_BRINGS: "no task in its place",
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
    An iterable dataset raises StopIteration when it has no more samples. Each worker has its own stream, which ends at
    its own time. Write what happens then. In the worker, `fetch` takes as many samples from the stream as there are
    keys, each with next(): some streams would begin anew if they were iterated. The last batch may be short; once no
    samples are left (or too few, with `drop_last`) `fetch` raises StopIteration, and the worker sends a StreamEnd in
    the batch's place. After that it answers no more tasks of this epoch.

    In main, `_worker_exhausted` is called when the StreamEnd arrives: it marks the worker as EXHAUSTED, tells it to
    stop unless the workers are persistent, and sends one task in place of the one that brought no batch.
    `_skip_unfulfilled` is called before main waits: it moves `_rcvd_idx` past tasks that will never be answered,
    because their worker is no longer ACTIVE, and removes their entries from `_task_info`. When `_rcvd_idx` reaches
    `_send_idx`, the loader ends the epoch.

    `in_order=False` is exercise 8: here every loader is in order, so each task from `_rcvd_idx` to `_send_idx` has an
    entry. (You may leave out the calls of `emit`.)
    """,
    legend={
        "keys": "[12, 13, 14, 15] with automatic batching; one key, 12, without",
        "self.dataset_iter": "the stream, in the fetcher: next(self.dataset_iter) is the next sample",
        "self.auto_collation": "True with automatic batching; without it `fetch` returns one sample, not a list",
        "self.drop_last": "True: an incomplete batch is dropped",
        "self.ended": "False: remember here that the stream has ended, and ask it no more",
        "self._workers_status": "[WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one per worker, in main; or "
        "WorkerState.DEAD",
        "self._persistent_workers": "True: the workers stay for the next epoch",
        "tell_to_stop(self, worker_id)": "tells one worker to end",
        "self._try_put_index()": "sends one task, if there is one and a worker that can take it",
        "self._rcvd_idx": "4: the next task to be yielded; self._send_idx is 7, the next to be sent",
        "self._task_info": "{4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: .arrived says whether its batch is there",
    },
    hints=(
        "Which tasks can main no longer expect, and how does it know? What if the batch of one of them has already "
        "arrived?",
        "`fetch`: collect with next() in a loop over the keys, and catch the StopIteration inside the loop: what you "
        "have collected is the short batch. `_skip_unfulfilled`: move on from `_rcvd_idx` until you reach a task "
        "that has arrived, or is worth waiting for.",
        "`fetch`: if self.ended, raise StopIteration; after the loop, raise it if there are no samples, or if "
        "self.ended and self.drop_last. `_worker_exhausted`: status, tell_to_stop, self._try_put_index(). "
        "`_skip_unfulfilled`: while self._rcvd_idx < self._send_idx: return if the entry has .arrived or its worker "
        "is ACTIVE; otherwise delete it and add 1 to _rcvd_idx.",
    ),
    grade=grade,
    notebook="07-iterable-datasets.ipynb",
    protocol=True,
    forbidden=("_IterableDatasetFetcher", "_utils"),
)
