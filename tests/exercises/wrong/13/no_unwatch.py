"""the queues are left open"""

from minidl.shutdown import PATIENCE, close_queues, end_pin_thread, stop_pin_thread, tell_to_stop, use_force


def shut_down(iterator):
    if iterator._shutdown or iterator._world.pid() != iterator._owner_pid:
        return
    iterator._shutdown = True
    try:
        stop_pin_thread(iterator)
        tell_workers_to_stop(iterator)
        wait_for_workers(iterator)
    except BaseException:
        end_pin_thread(iterator)
        raise
    finally:
        use_force(iterator)
        close_queues(iterator)


def tell_workers_to_stop(iterator):
    iterator._workers_done_event.set()
    for worker_id in range(len(iterator._workers)):
        tell_to_stop(iterator, worker_id)


def wait_for_workers(iterator):
    deadline = iterator._world.now() + PATIENCE
    for worker in iterator._workers:
        worker.join(max(0.0, deadline - iterator._world.now()))
