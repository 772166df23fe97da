"""Exercise 6: the worker loop.

A worker is a process that runs a loop: it takes a message from its index queue and, if it is a
task, does it and puts the result on the result queue. Write the loop, and `data_of`, which makes
the batch of one task, or what takes its place. The worker survives whatever Exception the dataset
raises: it travels to main as an ExceptionWrapper, made in the `except` block, and main raises it
when the task's turn comes. (What is no Exception, like SystemExit, may end the worker.)

There are four kinds of message. Answer a task (it has epoch_id, task_id and keys) with a Result;
but skip it if main is shutting down (the done event is set) or if this worker's stream has ended.
On Stop and on Died (main is dead) leave the loop, and return the End that says why. Resume begins a
new epoch: `self.resume(message)` does what is needed. Call `self.start()` before the first message.

If the dataset is an IterableDataset, StopIteration means that its stream has ended: `data_of` sets
`self.stream_ended` and returns a StreamEnd. If `self.failure` is set, no task can be done: return
it for each. If a task's keys are an ExceptionWrapper, they could not be pickled: return the
wrapper. (You may leave out the calls of `emit`.)

Legend
    self.index_queue   .get() waits for the next message and returns it: a Stop, a Died, a Resume
                       (isinstance tells which), or else a task, with .epoch_id, .task_id, .keys,
                       .slot and .fresh
    self.result_queue  .put(Result(epoch_id=0, task_id=3, worker_id=0, data=batch, room=room))
    self.job           .worker_id is 0; .done.is_set() says whether main is shutting down; .dataset
                       is the dataset
    self.transport     .room(message.slot, message.fresh), called before a task's batch is made,
                       returns the memory for it: pass it on as the Result's `room`
    load(...)          load(self.fetcher, keys, epoch_id, task_id, worker_id) fetches and collates:
                       it returns the batch, or raises what the dataset raised
    self.failure       None; or an ExceptionWrapper: worker_init_fn raised, or iter(dataset) did
    self.stream_ended  False; a new epoch sets it to False again
    self.interrupted   False; a signal handler sets it to True on Ctrl-C: look at it before each
                       get()
    End                End.STOPPED after a Stop, End.PARENT_DIED after a Died, End.INTERRUPTED after
                       Ctrl-C
    StreamEnd          StreamEnd(worker_id)
    ExceptionWrapper   ExceptionWrapper(where='in worker 0') wraps the exception that is being
                       handled, with its traceback

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 06`; `hint 06` helps.
It goes with notebooks/05-the-worker.ipynb.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils.data
from torch._utils import ExceptionWrapper

from minidl.data.fetch import load
from minidl.events import PARENT_DIED, STREAM_END, emit
from minidl.messages import Died, Resume, Stop, StreamEnd
from minidl.worker import End


class Worker:
    def loop(self) -> End:
        """Do tasks until told to stop, or until main is dead. torch: _worker_loop"""
        raise NotImplementedError

    def data_of(self, task: Any) -> Any:
        """The batch of a task, or what takes its place. An exception must not end the worker: it travels to main,
        which raises it when the task's turn comes.
        """
        raise NotImplementedError
