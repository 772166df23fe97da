"""Exercise 13: the shutdown.

When an epoch is over, an iterator is dropped half way, or the interpreter exits,
`shut_down(iterator)` ends the pin thread and the workers, and closes the queues. It may be called
more than once for an iterator, and also in processes that were forked from main and have a copy of
it: there it does nothing.

Write it, and steps 2 and 3 of its five: 1 `stop_pin_thread`, 2 `tell_workers_to_stop`, 3
`wait_for_workers`, 4 `use_force`, which ends those still alive, 5 `close_queues`. Each is called
once, with the iterator. Main must never wait for ever, whatever a worker does: one may be in a
fetch that never ends. All workers together have PATIENCE seconds to end by themselves, counted from
step 3. If something raises in steps 1 to 3 (Ctrl-C), steps 4 and 5 must still run, and the caller
gets the exception; after one in step 1 also call `end_pin_thread`.

In step 2 a worker learns of the end in two ways. It checks `_workers_done_event` before each task:
once that is set, it skips what is still in its queue. A Stop in its index_queue wakes it, and ends
its loop. (You may leave out the calls of `emit`, and of `joined`, which emits.)

Legend
    iterator._shutdown            False: there is something to shut down; True before anything is
                                  built
    iterator._owner_pid           4711: the process that built the iterator; iterator._world.pid()
                                  is the running one
    iterator._workers             [process, process]: each has join(timeout), is_alive(), exitcode
    iterator._workers_done_event  a flag: set(), is_set()
    iterator._world.now()         12.5: seconds on a clock that never goes back
    tell_to_stop(iterator, 0)     puts a Stop on the index_queue of worker 0, and closes it; a
                                  second call is harmless
    end_pin_thread(iterator)      step 1 again, for an exception that came in the middle of it;
                                  harmless if the thread has ended, or there is none
    signals.unwatch(iterator)     after the last step, also if one before it has raised: main stops
                                  watching for the ends of its workers
    PATIENCE                      5.0 seconds

Check it with `python -m notebooks.exercises check 13`; `hint 13` helps.
It goes with notebooks/10-shutting-down.ipynb.
"""

from __future__ import annotations

from minidl import signals
from minidl.events import DONE_SET, JOIN_BEGIN, SHUTDOWN_BEGIN, SHUTDOWN_END, emit
from minidl.parallel import ParallelIterator
from minidl.shutdown import PATIENCE, close_queues, end_pin_thread, joined, stop_pin_thread, tell_to_stop, use_force


def shut_down(iterator: ParallelIterator) -> None:
    """Leave no process, thread or pipe behind. Called a second time, be it while the first call has not returned, or in
    a process that merely inherited the iterator by fork, it does nothing: the workers are another process's children.
    """
    raise NotImplementedError


def tell_workers_to_stop(iterator: ParallelIterator) -> None:
    """Step 2."""
    raise NotImplementedError


def wait_for_workers(iterator: ParallelIterator) -> None:
    """Step 3."""
    raise NotImplementedError
