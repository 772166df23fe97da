"""Deaths: a worker that ends before its time, a message that cannot be read, a pin thread that is gone.

Guarantees
1. Whatever loses a task is raised, at once in next() and again at every further next(): no batch is ever silently
   missing.
2. A worker that ends because its stream has ended raises no false alarm.

The waits wake on a death by themselves (minidl.queues): it comes as a `Died` among the messages, after the
last message that the worker sent. torch: _try_get_data, and the handler of SIGCHLD
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NoReturn

from minidl import events
from minidl.events import describe, emit
from minidl.states import WorkerState
from minidl.world import Process, World

if TYPE_CHECKING:
    from minidl.parallel import ParallelIterator


def raise_deaths(iterator: ParallelIterator) -> None:
    """Raise if a worker that still had work to do has died. Costs one system call if none has. (It only looks: batches
    that a dead worker has sent are not received, and are lost with the others.)"""
    if not iterator._shutdown and iterator._failure is None:
        for worker_id in iterator._endings.wait(0):
            if iterator._workers_status[worker_id] is WorkerState.ACTIVE:  # else it was expected to end
                fail_for_death(iterator, worker_id)


def worker_ended(iterator: ParallelIterator, worker_id: int) -> None:
    """A worker's process has ended. Of an exhausted one that was expected."""
    status, iterator._workers_status[worker_id] = iterator._workers_status[worker_id], WorkerState.DEAD
    iterator._endings.remove(iterator._ending_of[worker_id])
    if status is WorkerState.ACTIVE:
        fail_for_death(iterator, worker_id)


def fail_for_death(iterator: ParallelIterator, worker_id: int) -> NoReturn:
    """Raise an error: this worker is dead, and these tasks died with it."""
    if iterator._failure is not None:  # SIGCHLD's handler has raised it in main, while another thread was in next()
        raise RuntimeError(iterator._failure)
    tasks = [
        (task_id, info.keys)
        for task_id, info in iterator._task_info.items()
        if info.worker_id == worker_id and not info.arrived
    ]
    worker = iterator._workers[worker_id]
    text = explain_death(iterator._world, worker, worker_id, tasks)
    emit(events.WORKER_DIED, iterator._epoch_id, worker=worker_id, value=worker.exitcode or 0, text=text)
    for task_id, _ in tasks:
        emit(events.TASK_LOST, iterator._epoch_id, task_id, worker_id)
    fail(iterator, text)


def fail_for_lost_message(iterator: ParallelIterator, error: BaseException) -> NoReturn:
    """A message could not be unpickled: its shared memory is out of reach. Usually its worker has just died, which
    may be visible only a moment later."""
    while ended := iterator._endings.wait(0.5):
        for worker_id in ended:
            worker_ended(iterator, worker_id)  # raises, unless it ended as it should, with its stream
    cause = error.__cause__ or error  # what unpickling raised
    if getattr(cause, "errno", None) == errno.EMFILE or "ancdata" in describe(cause):  # (multiprocessing's words)
        text = (
            "Too many open files. Communication with the workers is no longer possible. Please increase the limit "
            "using `ulimit -n` in the shell or change the sharing strategy by calling "
            "`torch.multiprocessing.set_sharing_strategy('file_system')` at the beginning of your code"
        )
    else:
        text = f"A batch was lost: it could not be unpickled ({describe(cause)})"
    fail(iterator, text, cause)


def check_health(iterator: ParallelIterator) -> None:
    """Nothing has come for a while: are the workers and the pin thread alive?"""
    if iterator._failure is not None:  # another thread or a signal handler has noticed a death
        raise RuntimeError(iterator._failure)
    for worker_id, worker in enumerate(iterator._workers):
        if iterator._workers_status[worker_id] is WorkerState.ACTIVE and not worker.is_alive():
            worker_ended(iterator, worker_id)
    if iterator._pin_memory_thread is not None and not iterator._pin_memory_thread.is_alive():
        fail(iterator, "Pin memory thread exited unexpectedly")


def fail(iterator: ParallelIterator, text: str, cause: BaseException | None = None) -> NoReturn:
    """Raise, now and at every further next(). The text is kept, not the exception: its traceback would hold the
    iterator, and so its workers, until the garbage collector runs."""
    iterator._failure = text
    raise RuntimeError(text) from cause


# What a death by this signal usually means.
CAUSES = {
    "SIGKILL": "Most often the system ran out of memory and its out-of-memory killer chose this process: "
    "try fewer workers, smaller batches, or a dataset that holds less in memory.",
    "SIGBUS": "It is possible that dataloader's workers are out of shared memory. Please try to raise your shared "
    "memory limit.",
    "SIGSEGV": "A crash in native code: the worker has printed the Python line it was in.",
    "SIGABRT": "Native code gave up (abort, a failed assertion): see what the worker printed.",
    "SIGTERM": "Something asked this process to end: a job scheduler, a container, a script.",
}


def explain_death(world: World, process: Process, worker_id: int, tasks: list[tuple[int, Any]]) -> str:
    """One paragraph on a worker that has ended: torch's words first, then which worker it was, what it was working on,
    and the likely cause. `tasks` are its `(task_id, keys)`, in the order they were sent. It was on one of the first; on
    which, main cannot know.
    torch: _error_if_any_worker_fails"""
    process.join(1.0)  # it has ended: this reaps it, so that its exit code is known
    code = process.exitcode
    cause = ""
    if code is not None and code < 0:
        name, words = world.signal(-code)
        text = f"DataLoader worker (pid {process.pid}) is killed by signal: {words}."
        cause = CAUSES.get(name, "")
    elif code is None:
        text = f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly."
    else:
        text = (
            f"DataLoader worker (pid {process.pid}) exited unexpectedly with exit code {code}. Details are lost due to "
            "multiprocessing. Rerunning with num_workers=0 may give better error trace."
        )
        cause = "Something in the worker called sys.exit() or os._exit()"
        cause += ", or it failed before it was ready: it has printed why." if code == 1 else "."
    named = ", or ".join(f"task {task_id}, keys {describe(keys):.200}" for task_id, keys in tasks[:3])
    doing = f"It was working on, or about to begin, {named}." if named else "It had no task."
    return f"{text} This was worker {worker_id}. {doing} {cause}".rstrip()
