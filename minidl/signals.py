"""SIGCHLD in main: a worker's death is raised even while main trains.

The loader's own waits wake on a death by themselves (minidl.queues). But main spends most of its time in the
training step, and may not come back for minutes. So a signal handler looks, and raises there and then.

Guarantee: it raises only in the user's code, never inside the loader's, whose state would be left half changed;
there the next wait notices. torch: _utils/signal_handling.py, whose handler raises anywhere
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from minidl.deaths import raise_deaths
from minidl.world import World

if TYPE_CHECKING:
    from minidl.parallel import ParallelIterator


_watched: weakref.WeakValueDictionary[int, ParallelIterator] = weakref.WeakValueDictionary()  # by id


def watch(world: World, iterator: ParallelIterator) -> None:
    """Look at this iterator's workers whenever a child of this process ends. The thread that builds the iterator is
    assumed to use it: if that is not the main thread, the handler would raise in the wrong place, and is
    not installed."""
    if world.on_child_exit(_look):
        _watched[id(iterator)] = iterator


# Libraries that must not be interrupted: weak references and multiprocessing's finalizers run where Python swallows
# exceptions, and multiprocessing may be about to store an exit code that it has just read.
DELICATE = ("multiprocessing.", "weakref", "_weakrefset")


def _look(frame: Any) -> None:
    """The handler. What it may not raise here, the next next() will."""
    if _module(frame).startswith(DELICATE):
        return
    while frame is not None:
        # (On the simulated machine every program runs in frames of that.)
        if _module(frame).startswith("minidl.") and not _module(frame).startswith("minidl.world.simulated."):
            return
        if frame.f_code.co_name == "__del__":
            return
        frame = frame.f_back
    # (A list of references is made in one step, whatever other threads add.)
    for iterator in [each for ref in _watched.valuerefs() if (each := ref()) is not None]:
        if iterator._shutdown or iterator._in_use or iterator._owner_pid != iterator._world.pid():
            continue  # over; another thread's; or inherited, with the handler, through a fork
        # If all ended with 0, it was Ctrl-C: main is about to be interrupted, and the next next() looks again.
        if any(iterator._workers[worker_id].exitcode != 0 for worker_id in iterator._endings.wait(0)):
            raise_deaths(iterator)


def _module(frame: Any) -> str:
    return frame.f_globals.get("__name__", "") if frame is not None else ""
