"""Exercise 10: the pin loop.

With `pin_memory`, a thread in main's process sits between the workers and main: it takes the
workers' messages, copies their batches into page-locked memory, and passes everything on. Write it.
`pin_loop` is what the thread runs: every message from `results` goes to `data_queue`, until main
sets the flag that stops it. `pinned` takes a Result with a batch, and returns one with the pinned
batch.

Not every message is a Result, and not every Result has a batch: what needs no pinning is passed on
as it is. Only the flag may end the thread, or what is no Exception (SystemExit). If a batch cannot
be pinned, the exception takes its place, in an ExceptionWrapper: main raises it when the task's
turn comes, and the other batches still arrive. If a message cannot even be unpickled, its task is
unknown: main gets a Failed.

`data_queue.put` never blocks. (torch's loop puts with a timeout, and checks the done event between
two tries.) You may leave out the calls of `emit`, the thread's name, the number of torch's threads,
and `device_index`: it is None here.

Legend
    results           the workers' messages: results.get() waits for the next one. It raises Stopped
                      once the flag is set, and whatever unpickling raises
    data_queue        what main reads: data_queue.put(message)
    Result            Result(epoch_id, task_id=3, worker_id=1, data=batch); .data may also be an
                      ExceptionWrapper or a StreamEnd
    Failed            Failed(epoch_id, error): a message is lost, and its task is unknown; error is
                      the exception that was raised, as it is, and epoch_id is `pin_loop`'s argument
    pin_batch         pin_batch(batch, device, epoch_id, task_id, worker_id): a pinned copy of the
                      batch
    device            'host': pass it to pin_batch (with an accelerator it is the type, 'cuda')
    ExceptionWrapper  ExceptionWrapper(where='in the pin thread'), made in an except clause: the
                      exception that is being handled, ready to travel

Check it with `python -m notebooks.exercises check 10`; `hint 10` helps.
It goes with notebooks/08-the-pin-thread.ipynb.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch._utils import ExceptionWrapper

from minidl.accelerator import accelerator
from minidl.events import PIN_FAILED, PIN_THREAD_BEGIN, PIN_THREAD_END, describe, emit
from minidl.messages import Failed, Result, StreamEnd
from minidl.pinning import HOST, pin_batch
from minidl.queues import Consumer, Stopped, ThreadQueue
from minidl.world import World


def pin_loop(
    world: World,
    results: Consumer,
    data_queue: ThreadQueue,
    device: str | None,
    device_index: int | None,
    epoch_id: int,
) -> None:
    """The pin thread: every message of `results` goes to `data_queue`, batches pinned on the way, until the flag
    that `results` watches is set. An exception travels on in the batch's place. torch: _pin_memory_loop
    """
    raise NotImplementedError


def pinned(result: Result, device: str | None) -> Result:
    raise NotImplementedError
