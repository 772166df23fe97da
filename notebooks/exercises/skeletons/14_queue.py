"""Exercise 14: the queue: buffer, feeder, pipe.

The writing side of a queue between processes. What is put has to be pickled and written to a pipe,
and a pipe that is full makes the writer wait. Main cannot afford to: it may be the one who should
read what another process waits to write. So `put(message)` never blocks: it leaves the message in a
buffer, and a thread, the feeder, sends it.

`put` starts the feeder when it is called for the first time, and not earlier: the workers are
forked before. `_feed` is what the feeder runs: it takes messages off the buffer and sends them, in
the order of the puts, and ends when the queue is closed, but not before all that was put is sent.
Whoever uses the writer last closes it: the reader learns from it that nothing more comes. If the
reader is gone, `self._send` raises OSError: then the feeder ends, too, quietly.

`close()` says that nothing more will be put, and does not wait. Nothing may have been put at all:
then there is no feeder. It may be called twice; from the first time on `self._closed` is True.

The calls of `emit` may be left out, and so may `_epoch_id` and what is done when no thread can be
started any more. But without `emit(PUT, ...)`, the first line of `put`, a timeline does not show
what is in a queue.

Legend
    message                                                         Task(epoch_id=..., task_id=3,
                                                                    keys=[12, 13]), or
                                                                    Stop(epoch_id=...)
    self._buffer                                                    a mailbox between threads,
                                                                    unbounded: put(thing), get()
                                                                    waits for the next thing,
                                                                    qsize()
    self._feeder                                                    None; then
                                                                    self._world.thread(function, (),
                                                                    name), which has start(),
                                                                    join(), is_alive()
    self._send(message)                                             pickles it, and writes it to the
                                                                    pipe: waits while that is full;
                                                                    OSError if the reader is gone
    self._writer                                                    the pipe's writing end: close()
    self._closed                                                    False; after close() True
    emit(PUT, message.epoch_id, message.task_id, worker_id, queue)  says that the message is put;
                                                                    queue, worker_id = self._name
    LAST                                                            what can stand in the buffer
                                                                    behind the last message: it is
                                                                    no message

Check it with `python -m notebooks.exercises check 14`; `hint 14` helps.
It belongs to notebooks/04-the-index-queues.ipynb.
"""

from __future__ import annotations

import contextlib
from typing import Any

from minidl.events import CLOSED, FEEDER_BEGIN, FEEDER_END, NO_TASK, PUT, emit
from minidl.queues import LAST


class Producer:
    def put(self, message: Any) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing more will be put. A second call does nothing."""
        raise NotImplementedError

    def _feed(self) -> None:
        """The feeder thread. torch: multiprocessing.queues.Queue._feed"""
        raise NotImplementedError
