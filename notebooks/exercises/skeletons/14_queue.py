"""Exercise 14: the queue: buffer, feeder, pipe.

This is the writing side of a queue between processes. What is put has to be pickled and written to
a pipe, and a full pipe makes the writer wait. Main must not wait: another process may in turn be
waiting for main to read. So `put(message)` never blocks: all that it does is call `_forward`, which
leaves the message in a buffer, and a thread, the feeder, sends it.

The first message starts the feeder, the only one; no earlier, because the workers must be forked
first. `_feed` is what the feeder runs: it takes messages from the buffer and sends them, in the
order of the puts. When the queue is closed, it ends, but only after everything that was put is
sent. The last user of the writer closes it: this tells the reader that nothing more comes. If the
reader is gone, `self._send` raises OSError: then, too, the feeder ends quietly.

`close()` declares that nothing more will be put, and does not wait. If nothing was ever put, there
is no feeder. It may be called twice; after the first call `self._closed` is True, in any case.

You may leave out the calls of `emit`, and the case in which no thread can be started any more.

Legend
    message              Task(epoch_id=..., task_id=3, keys=[12, 13]), or Stop(epoch_id=...)
    self._buffer         a mailbox between threads, unbounded: put(thing), get() waits for the next
                         thing, qsize()
    self._feeder         None; then self._world.thread(function, (), name), which has start(),
                         join(), is_alive()
    self._send(message)  pickles it and writes it to the pipe: waits while that is full; OSError if
                         the reader is gone
    self._writer         the pipe's writing end: close()
    self._closed         False; after close() True
    LAST                 not a message: put it in the buffer after the last one

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 14`; `hint 14` helps.
It goes with notebooks/04-the-index-queues.ipynb.
"""

from __future__ import annotations

import contextlib
from typing import Any

from minidl.events import CLOSED, FEEDER_BEGIN, FEEDER_END, NO_TASK, emit
from minidl.queues import LAST, SMALL


class Producer:
    def _forward(self, message: Any) -> None:
        """Leave it to the feeder."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing more will be put. A second call does nothing."""
        raise NotImplementedError

    def _feed(self) -> None:
        """The feeder thread. torch: multiprocessing.queues.Queue._feed"""
        raise NotImplementedError
