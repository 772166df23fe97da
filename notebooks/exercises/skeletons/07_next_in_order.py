"""Exercise 7: the next batch, in order.

Batches come back from the workers in any order; main yields them in the sampler's order. Write the
three methods that do this. `_next_task` waits until the batch of task `_rcvd_idx` is there, and
returns that number. To wait, it calls `_receive`, which takes in one message. A batch that arrives
early stays in `_task_info`: that is the reorder buffer. Then `_take` is called with the number: it
hands the batch out, and sends one new task in its place.

`in_order=False` is exercise 8, and streams that end are exercise 9. Here every loader is in order,
and every task brings a batch, or an ExceptionWrapper with the exception that the worker raised:
`_take` raises it. (You may leave out the lines for those two exercises, and the calls of `emit`:
without them only the timeline's reorder buffer is missing.)

Legend
    self._rcvd_idx           4: the next task to be yielded
    self._send_idx           7: the next task to be sent. When the two are equal, the epoch is over:
                             call self._shutdown_workers() (unless self._persistent_workers), and
                             raise StopIteration
    self._task_info          {4: TaskInfo(worker_id=0, keys=[8, 9]), ...}: the tasks that were sent
                             and not yet yielded. Store a batch in .data of its task; .arrived says
                             whether it is there
    self._get_data(timeout)  the next message: Result(task_id=5, worker_id=1, data=batch), or Died,
                             which you can ignore
    self._tasks_outstanding  2: tasks that were sent and have no result yet. _workers_num_tasks is
                             the same per worker
    self._try_put_index()    sends one task, if there is one
    data.reraise()           raises the exception in an ExceptionWrapper
    self._timeout            the argument for _receive

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 07`; `hint 07` helps.
It goes with notebooks/06-out-of-order-back-in-order.ipynb.
"""

from __future__ import annotations

from typing import Any

from torch._utils import ExceptionWrapper

from minidl.events import RECEIVED, RELEASED, STORED, emit
from minidl.messages import Result, StreamEnd


class ParallelIterator:
    def _receive(self, timeout: float) -> int | None:
        """Take in one message. If it is a batch, store it and return its task's id."""
        raise NotImplementedError

    def _next_task(self) -> int:
        """Wait until a task can be yielded: the next one in order, or any if order does not matter."""
        raise NotImplementedError

    def _take(self, task_id: int) -> Any:
        """Refill, then hand out a batch, or raise the exception that came in its place. torch: _process_data"""
        raise NotImplementedError
