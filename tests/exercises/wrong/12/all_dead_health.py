"""waits until all are dead"""

from minidl.deaths import fail, fail_for_death
from minidl.states import WorkerState


def check_health(iterator):
    if any(worker.is_alive() for worker in iterator._workers):
        return
    for worker_id, worker in enumerate(iterator._workers):
        if iterator._workers_status[worker_id] is WorkerState.ACTIVE and not worker.is_alive():
            worker_ended(iterator, worker_id)
    thread = iterator._pin_memory_thread
    if thread is not None and not thread.is_alive():
        fail(iterator, "the pin thread has ended")


def worker_ended(iterator, worker_id):
    status = iterator._workers_status[worker_id]
    iterator._workers_status[worker_id] = WorkerState.DEAD
    iterator._endings.remove(iterator._ending_of[worker_id])
    if status is WorkerState.ACTIVE:
        fail_for_death(iterator, worker_id)
