"""Exercise 8: the next batch, in_order=False.

A training loop that does not mind the order need not wait for a slow worker: with `in_order=False`
main hands out whichever batch comes next. Write the three methods in which that makes a difference.
`_next_task` waits until some batch is there, and returns its task's number. `_take` is called with
the number: it sends one new task, and hands the batch out, or raises the exception that came in its
place; the task is forgotten.

`_choose_worker` says which worker is sent a task: the next active one in turn that has room. Where
batches are waited for in turn no worker can have too many; here, one that is slow would be sent
more and more. Hence the bound: of the `max_tasks` that may be under way, each of the active workers
has its equal share. It returns None if no worker can take a task; the keys are dropped then.

Here every loader has `in_order=False`, all workers are active, and every task brings a batch. (The
lines for other loaders may be left out, and so may the calls of `emit`.)

Legend
    self._receive(timeout)   takes in one message (call it with self._timeout), puts a batch into
                             its task's entry, and returns the task's number, 5; None for a message
                             that was no batch
    self._task_info          {4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: the tasks that were sent
                             and not yet yielded; .data is the batch, or an ExceptionWrapper in its
                             place; .arrived says whether it is there
    self._rcvd_idx           4: all tasks below it are yielded. self._skip_unfulfilled() moves it
                             past tasks that have left _task_info, as long as it is one of these
    self._send_idx           7: the next task to be sent. When _rcvd_idx has come to it, the epoch
                             is over: call self._shutdown_workers() (unless
                             self._persistent_workers), and raise StopIteration
    self._try_put_index()    sends one task, if there is one: it draws keys, and calls
                             _choose_worker
    max_tasks                4: prefetch_factor * num_workers, the tasks that may be under way in
                             all
    self._next_worker        1: whose turn it is; _choose_worker moves it on, after the last back to
                             0
    self._workers_num_tasks  [2, 1]: tasks that were sent to each worker, and no result received
    self._workers_status     [WorkerState.ACTIVE, WorkerState.ACTIVE]

Check it with `python -m notebooks.exercises check 08`; `hint 08` helps.
It belongs to notebooks/06-out-of-order-back-in-order.ipynb.
"""

from __future__ import annotations

from typing import Any

from torch._utils import ExceptionWrapper

from minidl.events import RELEASED, emit
from minidl.states import WorkerState


class ParallelIterator:
    def _choose_worker(self, max_tasks: int) -> int | None:
        """The next active worker in turn; without order, the next that has room. In order no worker can
        have too many, since its batches are waited for in turn.
        """
        raise NotImplementedError

    def _next_task(self) -> int:
        """Wait until a task can be yielded: in order the next one, else any."""
        raise NotImplementedError

    def _take(self, task_id: int) -> Any:
        """Refill, then hand out a batch, or raise the exception that came in its place. torch: _process_data"""
        raise NotImplementedError
