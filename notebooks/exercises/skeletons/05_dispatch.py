"""Exercise 5: dispatch and priming.

Main sends tasks to the workers, each through the worker's own index queue. Write the three methods
that do this. `_prime` is called when an epoch begins, and gives each worker `prefetch_factor`
tasks, in turn. `_try_put_index` sends one task: it draws the keys, records that the task is under
way, and puts it on the queue of the worker that `_choose_worker` returns. Later the loader calls it
once for each batch that it hands out.

If the sampler has no more keys, nothing is sent, and the caller need not know. A worker whose
iterable dataset has ended gets no more tasks: `_choose_worker` returns the next ACTIVE one in turn,
or None if none is left. Then the drawn keys are dropped.

`in_order=False` is exercise 8: here every loader is in order. (You may leave out the calls of
`emit`.)

Legend
    self._next_keys()        draws the keys of one task, [12, 13, 14, 15]; StopIteration if the
                             sampler has no more
    self._prefetch_factor    2: tasks per worker; self._num_workers is 2
    max_tasks                4: prefetch_factor * num_workers; only in_order=False needs it
    self._next_worker        0: the worker whose turn it is
    self._workers_status     [WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one per worker
    self._send_idx           7: the number, task_id, of the next task to be sent
    self._task_info          {4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: an entry for each task
                             that was sent and not yet yielded
    self._tasks_outstanding  2: tasks that were sent and have no result yet;
                             self._workers_num_tasks, [1, 1], is the same per worker. What you count
                             up, `_receive` counts down
    self._index_queues       one per worker: .put(Task(self._epoch_id, task_id, keys)) sends a task

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 05`; `hint 05` helps.
It goes with notebooks/04-the-index-queues.ipynb.
"""

from __future__ import annotations

from minidl.events import DISPATCHED, NO_CAPACITY, PRIMED, emit
from minidl.messages import Task
from minidl.states import TaskInfo, WorkerState


class ParallelIterator:
    def _prime(self) -> None:
        """Give every worker `prefetch_factor` tasks, in turn; from then on each batch yielded leads to one more.
        torch: _reset
        """
        raise NotImplementedError

    def _try_put_index(self) -> None:
        """Send one task, if the sampler has keys for one and a worker can take it. torch: _try_put_index"""
        raise NotImplementedError

    def _choose_worker(self, max_tasks: int) -> int | None:
        """The next active worker in turn; without order, the next that has room. In order no worker can
        have too many, since its batches are waited for in turn.
        """
        raise NotImplementedError
