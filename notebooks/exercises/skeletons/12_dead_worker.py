"""Exercise 12: noticing a dead worker.

A worker may die at any moment: killed by the system when memory runs out, or by a crash in native
code. Its tasks are lost, and unless main checks, it waits for them for ever. Write the two
functions that check.

`worker_ended` is called once a worker's process is known to have ended. If the worker was ACTIVE,
its tasks are lost: fail_for_death raises an error that says so, now and at every later next(). A
worker whose stream had ended was told to end, and nothing is missing. Either way mark it as DEAD,
and remove its ending from those that `_endings` waits for.

`check_health` is called when nothing has come for five seconds, or for the user's timeout. Usually
the dataset is slow, and there is nothing to do. But check each ACTIVE worker, and the pin thread if
there is one: without it nothing can arrive any more. (You may leave out the call of `emit`, and the
check of `_failure`, which another thread could have set.)

Legend
    iterator._workers            the processes, one per worker: process.is_alive()
    iterator._workers_status     [WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one per worker; or
                                 WorkerState.DEAD
    iterator._ending_of          one per worker: becomes ready when its process ends
    iterator._endings            waits for all of these: iterator._endings.remove(ending) removes
                                 one, and only once
    iterator._pin_memory_thread  None, or the thread: thread.is_alive()
    fail_for_death               fail_for_death(iterator, worker_id): raises a RuntimeError that
                                 says which worker died, why, and with which tasks
    fail                         fail(iterator, text): raises a RuntimeError with this text, now and
                                 at every later next()

Check it with `python -m notebooks.exercises check 12`; `hint 12` helps.
It goes with notebooks/10-shutting-down.ipynb.
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
