"""Exercise 6: the worker loop.

A worker is a process with a loop in it: take a message from its index queue; if it is a task, do
it, and put what came of it on the result queue. Write the loop, and `data_of`, which makes the
batch of one task, or what takes its place. Whatever the dataset raises, the worker lives on: an
exception travels to main as an ExceptionWrapper, made in the `except` block, and main raises it
when the task's turn comes.

Four kinds of message come. A task (it has epoch_id, task_id and keys) is answered with a Result,
but passed over if main shuts down (the done event is set) or if the stream of this worker has
ended. Stop and Died (main is dead) end the loop, with the End that says why. Resume begins a new
epoch: `self.resume` does what is needed. Call `self.start()` before the first message.

When the dataset is an IterableDataset, StopIteration says that its stream has ended: `data_of`
notes it in `self.stream_ended`, and the data is a StreamEnd. If `self.failure` is set, no task can
be done, and it is the answer to each; if a task's keys are an ExceptionWrapper, these could not be
pickled, and they are the answer. (The calls of `emit` may be left out.)

Legend
    self.index_queue   .get() waits for the next message and returns it
    self.result_queue  .put(Result(epoch_id=0, task_id=3, worker_id=0, data=batch))
    self.job           .worker_id is 0; .done.is_set() says whether main shuts down; .dataset is the
                       dataset
    load(...)          load(self.fetcher, keys, epoch_id, task_id, worker_id) fetches and collates:
                       returns the batch, or raises what the dataset raised
    self.failure       None; or an ExceptionWrapper: worker_init_fn raised, or iter(dataset) did
    self.stream_ended  False; a new epoch sets it to False again
    self.interrupted   False; True after Ctrl-C, which ends the loop: End.INTERRUPTED
    ExceptionWrapper   ExceptionWrapper(where='in worker 0') wraps the exception that is being
                       handled, with its traceback

Check it with `python -m notebooks.exercises check 06`; `hint 06` helps.
It belongs to notebooks/05-the-worker.ipynb.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils.data
from torch._utils import ExceptionWrapper

from minidl.data.fetch import load
from minidl.events import PARENT_DIED, STREAM_END, emit
from minidl.messages import Died, Result, Resume, Stop, StreamEnd
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
