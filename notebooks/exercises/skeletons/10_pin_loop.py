"""Exercise 10: the pin loop.

With `pin_memory` a thread of main stands between the workers and main: it takes the workers'
messages, copies their batches into page-locked memory, and passes everything on. Write it.
`pin_loop` is what the thread runs: every message of `results` goes to `data_queue`, until the flag
is set that main uses to stop it. `pinned` takes a Result with a batch, and returns one with the
pinned batch.

Not every message is a Result, and not every Result has a batch: what needs no pinning goes on as it
is. Nothing may end the thread but the flag. If a batch cannot be pinned, its exception takes its
place, in an ExceptionWrapper: main raises it when the task's turn comes, and the other batches
still come. If a message cannot even be unpickled, nobody knows which task it was: main gets a
Failed.

`data_queue.put` never blocks. (torch's loop puts with a timeout, and looks at the done event
between two tries.) The calls of `emit`, the thread's name and the number of its threads may be left
out, and so may `device_index`: it is None here.

Legend
    results           the workers' messages: results.get() waits for the next one. It raises Stopped
                      once the flag is set, and whatever unpickling raises
    data_queue        what main reads: data_queue.put(message)
    Result            Result(epoch_id, task_id=3, worker_id=1, data=batch); .data may also be an
                      ExceptionWrapper or a StreamEnd
    Failed            Failed(epoch_id, error): a message is lost, and nobody knows whose
    pin_batch         pin_batch(batch, device, epoch_id, task_id, worker_id): a pinned copy of the
                      batch
    device            'host': what pin_batch is called with (an accelerator's type, 'cuda', where
                      there is one)
    ExceptionWrapper  ExceptionWrapper(where='in the pin thread'), made in an except clause: the
                      exception that is being handled, ready to travel

Check it with `python -m notebooks.exercises check 10`; `hint 10` helps.
It belongs to notebooks/08-the-pin-thread.ipynb.
"""

from __future__ import annotations

import torch
from torch._utils import ExceptionWrapper

from minidl.events import PIN_FAILED, PIN_THREAD_BEGIN, PIN_THREAD_END, emit
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
