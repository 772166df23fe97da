"""Exercise 9: end of stream.

An iterable dataset raises StopIteration when it has no more samples. Each worker has its own
stream, which ends at its own time. Write what happens then. In the worker, `fetch` takes as many
samples from the stream as there are keys, each with next(): some streams would begin anew if they
were iterated. The last batch may be short; once no samples are left (or too few, with `drop_last`)
`fetch` raises StopIteration, and the worker sends a StreamEnd in the batch's place. After that it
answers no more tasks of this epoch.

In main, `_worker_exhausted` is called when the StreamEnd arrives: it marks the worker as EXHAUSTED,
tells it to stop unless the workers are persistent, and sends one task in place of the one that
brought no batch. `_skip_unfulfilled` is called before main waits: it moves `_rcvd_idx` past tasks
that will never be answered, because their worker is no longer ACTIVE, and removes their entries
from `_task_info`. When `_rcvd_idx` reaches `_send_idx`, the loader ends the epoch.

`in_order=False` is exercise 8: here every loader is in order, so each task from `_rcvd_idx` to
`_send_idx` has an entry. (You may leave out the calls of `emit`.)

Legend
    keys                           [12, 13, 14, 15] with automatic batching; one key, 12, without
    self.dataset_iter              the stream, in the fetcher: next(self.dataset_iter) is the next
                                   sample
    self.auto_collation            True with automatic batching; without it `fetch` returns one
                                   sample, not a list
    self.drop_last                 True: an incomplete batch is dropped
    self.ended                     False: remember here that the stream has ended, and ask it no
                                   more
    self._workers_status           [WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one per worker, in
                                   main; or WorkerState.DEAD
    self._persistent_workers       True: the workers stay for the next epoch
    tell_to_stop(self, worker_id)  tells one worker to end
    self._try_put_index()          sends one task, if there is one and a worker that can take it
    self._rcvd_idx                 4: the next task to be yielded; self._send_idx is 7, the next to
                                   be sent
    self._task_info                {4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: .arrived says
                                   whether its batch is there

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 09`; `hint 09` helps.
It goes with notebooks/07-iterable-datasets.ipynb.
"""

from __future__ import annotations

from typing import Any

from minidl.events import TASK_SKIPPED, WORKER_EXHAUSTED, emit
from minidl.shutdown import tell_to_stop
from minidl.states import WorkerState


class IterableFetcher:
    def fetch(self, keys: Any) -> Any:
        """As many samples as there are keys, or as many as are left.

        Raises:
            StopIteration: none is left, or too few for a whole batch and `drop_last` is set.
        """
        raise NotImplementedError


class ParallelIterator:
    def _worker_exhausted(self, worker_id: int) -> None:
        """A worker's iterable dataset has ended; the others go on."""
        raise NotImplementedError

    def _skip_unfulfilled(self) -> None:
        """Move `_rcvd_idx` past what will never come: tasks already yielded out of order, and tasks that are with
        a worker whose stream has ended.
        """
        raise NotImplementedError
