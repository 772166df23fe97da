"""The shutdown protocol: five steps, each with the reason for its place.

It runs when the epoch is over, when the iterator is dropped halfway, when the interpreter exits, and after the
death of a worker. It must come to an end whatever the workers do, so every wait is bounded. The death of
main is not handled here but in the workers: each watches its parent.

Step                        Why here
1 stop the pin thread       It reads what workers write: stopped later, it would wait for half a message of a worker
                            that was stopped first (pytorch#11985, #24927).
2 tell the workers to stop  The done event first, so that a worker skips what is in its queue instead of fetching
                            it; then Stop, which wakes it.
3 wait for them             One deadline for all: each has its last fetch to finish.
4 use force                 SIGTERM, then SIGKILL. A worker in a long fetch, or one whose Stop was lost with a
                            broken pipe, must not hold up main (pytorch#26072, #39869).
5 close the queues          Last: a worker that still writes would see a broken pipe.

torch: _shutdown_workers
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from minidl import events
from minidl.events import emit
from minidl.messages import Stop
from minidl.world import World

if TYPE_CHECKING:
    from minidl.parallel import ParallelIterator

PATIENCE = 5.0  # seconds for the pin thread, and for all workers together, to end by themselves


def shut_down(iterator: ParallelIterator) -> None:
    """Leave no process, thread or pipe behind. A second call does nothing, even before the first has returned; nor does
    a call in a process that merely inherited the iterator by fork: the workers are another process's children."""
    if iterator._shutdown or iterator._world.pid() != iterator._owner_pid:
        return
    iterator._shutdown = True
    emit(events.SHUTDOWN_BEGIN, iterator._epoch_id, value=len(getattr(iterator, "_task_info", ())))
    all_ended = False
    try:
        try:
            stop_pin_thread(iterator)
            tell_workers_to_stop(iterator)
            wait_for_workers(iterator)
        except BaseException:  # Ctrl-C skips the waits, but the pin thread must end before its queues are closed
            end_pin_thread(iterator)
            raise
        finally:
            use_force(iterator)
            all_ended = True
    finally:  # also after Ctrl-C in use_force
        close_queues(iterator)
        if all_ended:
            emit(events.SHUTDOWN_END, iterator._epoch_id)


def stop_pin_thread(iterator: ParallelIterator) -> None:
    """Step 1. The thread waits for this flag together with the workers' pipes, so setting it wakes the thread."""
    thread = iterator._pin_memory_thread
    if thread is None:
        return
    emit(events.PIN_STOPPING, iterator._epoch_id)
    end_pin_thread(iterator)
    emit(events.PIN_JOINED, iterator._epoch_id, value=int(not thread.is_alive()))


def end_pin_thread(iterator: ParallelIterator) -> None:
    """Before step 5 closes what it reads: a thread that waits for something closed waits forever."""
    thread = iterator._pin_memory_thread
    iterator._pin_memory_thread_done_event.set()
    # (Garbage is collected in any thread; and after Ctrl-C in its start it may not run.)
    if thread is not None and thread.is_alive() and thread is not iterator._world.current_thread():
        thread.join(PATIENCE)


def tell_workers_to_stop(iterator: ParallelIterator) -> None:
    """Step 2."""
    emit(events.DONE_SET, iterator._epoch_id)
    iterator._workers_done_event.set()
    for worker_id in range(len(iterator._workers)):
        tell_to_stop(iterator, worker_id)


def tell_to_stop(iterator: ParallelIterator, worker_id: int) -> None:
    """Nothing more is sent to this worker. torch: _mark_worker_as_unavailable"""
    index_queue = iterator._index_queues[worker_id]
    if not index_queue.closed:  # an exhausted worker already has its Stop
        index_queue.put(Stop(iterator._epoch_id))
        index_queue.close()


def wait_for_workers(iterator: ParallelIterator) -> None:
    """Step 3."""
    deadline = iterator._world.now() + PATIENCE
    for worker_id, worker in enumerate(iterator._workers):
        patience = max(0.0, deadline - iterator._world.now())
        emit(events.JOIN_BEGIN, iterator._epoch_id, worker=worker_id, value=int(patience * 1e9))
        worker.join(patience)
        if not worker.is_alive():
            joined(iterator, worker_id)


def joined(iterator: ParallelIterator, worker_id: int) -> None:
    """Once for each worker."""
    if worker_id not in iterator._joined:
        iterator._joined.add(worker_id)
        exitcode = iterator._workers[worker_id].exitcode
        emit(events.WORKER_JOINED, iterator._epoch_id, worker=worker_id, value=exitcode or 0)


def use_force(iterator: ParallelIterator) -> None:
    """Step 4."""
    late = [worker_id for worker_id, worker in enumerate(iterator._workers) if worker.is_alive()]
    for worker_id in late:
        emit(events.WORKER_TERMINATED, iterator._epoch_id, worker=worker_id)
        iterator._workers[worker_id].terminate()
    for worker_id, worker in enumerate(iterator._workers):
        worker.join(PATIENCE)
        if worker.is_alive():
            emit(events.WORKER_KILLED, iterator._epoch_id, worker=worker_id)
            worker.kill()
            worker.join(PATIENCE)  # bounded, too: a process stuck in the kernel survives even SIGKILL
        elif worker_id not in late:  # Ctrl-C has cut step 3 short
            joined(iterator, worker_id)
        if worker.pid and worker.exitcode is not None and (worker.exitcode or worker_id in late):
            iterator._world.remove_shared_memory_of(worker.pid)


def close_queues(iterator: ParallelIterator) -> None:
    """Step 5. Wait for the feeders, so that SHUTDOWN_END is this iterator's last event.

    A pin thread that did not end in time has yet to look at its flag. It could not if that were closed, so what it
    waits for stays open, and is closed when the thread is gone."""
    deadline = iterator._world.now() + PATIENCE
    for index_queue in iterator._index_queues:
        index_queue.close()
        index_queue.join_thread(max(0.0, deadline - iterator._world.now()))
    thread = iterator._pin_memory_thread
    if thread is None or not thread.is_alive():
        iterator._worker_result_queue.close()
        iterator._pin_memory_thread_done_event.close()
    iterator._endings.close()
    iterator._workers_done_event.close()


_at_exit: weakref.WeakSet[Any] = weakref.WeakSet()


def shut_down_at_exit(world: World, iterator: ParallelIterator) -> None:
    """At interpreter exit shut down what is left, while everything still works: multiprocessing would terminate the
    workers first, in the middle of whatever they do (pytorch#47445, #71579)."""
    _at_exit.add(iterator)
    world.on_exit(_shut_down_all)


def _shut_down_all() -> None:
    for iterator in list(_at_exit):
        shut_down(iterator)
