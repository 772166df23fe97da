"""the error does not stay"""

from minidl.deaths import fail
from minidl.states import WorkerState


def check_health(iterator):
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
        raise RuntimeError(f"worker {worker_id} has died")
