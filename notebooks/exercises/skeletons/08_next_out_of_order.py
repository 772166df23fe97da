"""Exercise 8: the next batch, in_order=False.

A training loop that does not care about the order need not wait for a slow worker: with
`in_order=False` main hands out whichever batch arrives next. Write the three methods in which that
makes a difference. `_next_task` waits until any batch is there (one may be already), and returns
its task's number. `_take` is called with the number: it sends one new task, forgets the old one,
and hands out its batch, or raises the exception that came in its place.

`_choose_worker` returns the worker that gets the next task: the next active one in turn that has
room. In order, main waits for each batch in turn, so no worker can have too many tasks; here a slow
one would be sent more and more. Hence the limit: each active worker gets an equal share of the
`max_tasks` that may be under way. If no worker can take a task, it returns None, and the keys are
dropped.

Here every loader has `in_order=False`, all workers are active, and every task brings a batch. (You
may leave out the lines for other loaders, and the calls of `emit`.)

Legend
    self._receive(timeout)   takes in one message (call it with self._timeout), stores a batch in
                             its task's entry, and returns the task's number, 5; None for a message
                             that is not a batch
    self._task_info          {4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: the tasks that were sent
                             and not yet yielded; .data is the batch, or an ExceptionWrapper in its
                             place; .arrived says whether it is there
    self._rcvd_idx           4: all tasks below it have been yielded. self._skip_unfulfilled() moves
                             it past tasks that are no longer in _task_info
    self._send_idx           7: the next task to be sent. When _rcvd_idx reaches it, the epoch is
                             over: call self._shutdown_workers() (unless self._persistent_workers),
                             and raise StopIteration
    self._try_put_index()    sends one task, if there is one: it draws keys, and calls
                             _choose_worker
    max_tasks                4: prefetch_factor * num_workers, the tasks that may be under way in
                             all
    self._next_worker        1: whose turn it is; _choose_worker moves it on, from the last back to
                             0
    self._workers_num_tasks  [2, 1]: how many tasks each worker was sent that have no result yet
    self._workers_status     [WorkerState.ACTIVE, WorkerState.ACTIVE]

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 08`; `hint 08` helps.
It goes with notebooks/06-out-of-order-back-in-order.ipynb.
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
        """Wait until a task can be yielded: the next one in order, or any if order does not matter."""
        raise NotImplementedError

    def _take(self, task_id: int) -> Any:
        """Refill, then hand out a batch, or raise the exception that came in its place. torch: _process_data"""
        raise NotImplementedError
