"""Exercise 12: noticing a dead worker.

A worker may be killed at any moment: by the system, when memory runs out; by a crash in native
code. Its tasks are lost, and main, if it does not look, waits for them for ever. Write the two
functions that look.

`worker_ended` is called when it is known that a worker's process is no more. Was the worker ACTIVE,
its tasks are lost: fail_for_death raises an error that says so, now and at every further next(). A
worker whose stream had ended was told to end, and nothing is missing. Either way note that it is
DEAD, and take its ending out of what `_endings` waits for.

`check_health` is called when main has waited for five seconds in vain, or for the user's timeout.
Most often the reason is a slow dataset, and nothing is to be done. But look at each worker, and at
the pin thread, if there is one: without it nothing can come any more. (The call of `emit` may be
left out, and so may the look at `_failure`, which another thread could have set.)

Legend
    iterator._workers            the processes, one for each worker: process.is_alive()
    iterator._workers_status     [WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one for each worker;
                                 or WorkerState.DEAD
    iterator._ending_of          one for each worker: what is ready once its process has ended
    iterator._endings            waits for all of these: iterator._endings.remove(ending) takes one
                                 out, and only once
    iterator._pin_memory_thread  None, or the thread: thread.is_alive()
    fail_for_death               fail_for_death(iterator, worker_id): raises a RuntimeError that
                                 says who died, of what, with which tasks
    fail                         fail(iterator, text): raises a RuntimeError with this text, now and
                                 at every further next()

Check it with `python -m notebooks.exercises check 12`; `hint 12` helps.
It belongs to notebooks/10-shutting-down.ipynb.
"""

from __future__ import annotations

from minidl.deaths import fail, fail_for_death
from minidl.events import HEALTH_CHECK, emit
from minidl.parallel import ParallelIterator
from minidl.states import WorkerState


def check_health(iterator: ParallelIterator) -> None:
    """Nothing has come for a while: are the workers and the pin thread alive?"""
    raise NotImplementedError


def worker_ended(iterator: ParallelIterator, worker_id: int) -> None:
    """A worker's process has ended. An exhausted one was told to."""
    raise NotImplementedError
