"""SIGCHLD in main: a worker's death is raised even while main trains. And what to say of a death.

The loader's own waits wake on a death by themselves (minidl.queues). But main spends most of its time in the
training step, and may not come back for minutes. So a signal handler looks, and raises there and then.

Guarantee: it raises only in the user's code, never inside the loader's, whose state would be left half changed;
there the next wait notices. torch: _utils/signal_handling.py, whose handler raises anywhere
"""

from __future__ import annotations

import weakref
from typing import Any

from minidl.world import Process, World

_watched: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(world: World, iterator: Any) -> None:
    """Call `iterator.notice_deaths()` when a child of this process ends. The thread that builds the iterator is
    taken for the one that uses it: on any other than the main thread the handler would raise in the wrong place,
    and is not installed."""
    if world.on_child_exit(_look):
        _watched.add(iterator)


def unwatch(iterator: Any) -> None:
    _watched.discard(iterator)


def _look(frame: Any) -> None:
    while frame is not None:
        # Nor in multiprocessing's waiting for a child, which may be about to note the exit code that it has just read;
        # nor in a finalizer, where Python swallows what is raised.
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith(("minidl.", "multiprocessing.popen_")) or function == "__del__":
            return
        frame = frame.f_back
    for iterator in list(_watched):
        iterator.notice_deaths(while_training=True)


# What a death by this signal usually means.
CAUSES = {
    "SIGKILL": "Most often the system ran out of memory and its out-of-memory killer chose this process: "
    "try fewer workers, smaller batches, or a dataset that holds less in memory.",
    "SIGBUS": "It is possible that dataloader's workers are out of shared memory. Please try to raise your shared "
    "memory limit.",
    "SIGSEGV": "A crash in native code: the worker has printed the Python line it was in.",
    "SIGABRT": "Native code gave up (abort, a failed assertion): see what the worker printed.",
    "SIGFPE": "A crash in native code (a division by zero): the worker has printed the Python line it was in.",
    "SIGILL": "A crash in native code: a library was built for another processor.",
    "SIGTERM": "Something asked this process to end: a job scheduler, a container, a script.",
}


def explain_death(world: World, process: Process, worker_id: int, tasks: list[tuple[int, Any]]) -> str:
    """One paragraph on a worker that has ended: who, by what, during which `(task_id, keys)`, and the likely cause.
    Of several tasks it was one of the first: those before it were done, but still in the worker's feeder.
    It begins with torch's words. torch: _error_if_any_worker_fails"""
    process.join(1.0)  # it has ended: this reaps it, so that its exit code is known
    code = process.exitcode
    cause = ""
    if code is not None and code < 0:
        text = f"DataLoader worker (pid {process.pid}) is killed by signal: {world.signal_name(-code)}."
        cause = CAUSES.get(world.signal_id(-code), "")
    elif code:
        text = (
            f"DataLoader worker (pid {process.pid}) exited unexpectedly with exit code {code}. Details are lost due to "
            "multiprocessing. Rerunning with num_workers=0 may give better error trace."
        )
    else:
        text = f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly"
        text += " with exit code 0." if code == 0 else "."
    if code is not None and code >= 0:
        cause = "Something in the worker called sys.exit() or os._exit()."
    named = ", or ".join(f"task {task_id}, keys {shorten(keys)}" for task_id, keys in tasks[:3])
    doing = f"It was working on {named}." if named else "It had no task."
    return f"{text} This was worker {worker_id}. {doing} {cause}".rstrip()


def shorten(keys: Any, limit: int = 200) -> str:
    text = repr(keys)
    return text if len(text) <= limit else f"{text[:limit]}…"
