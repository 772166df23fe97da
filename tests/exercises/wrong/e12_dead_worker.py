"""Exercise 12: wrong answers."""

from tests.exercises.wrong.edits import Wrong

IF_ACTIVE = "if status is WorkerState.ACTIVE:"
FAIL = "fail_for_death(iterator, worker_id)"
ENDED = "worker_ended(iterator, worker_id)"
NOTE = "status, iterator._workers_status[worker_id] = iterator._workers_status[worker_id], WorkerState.DEAD"
IS_DEAD = " and not worker.is_alive():"
EACH_WORKER = "for worker_id, worker in enumerate(iterator._workers):"
WRONG = {
    "the_workers_live": Wrong(
        "a check of the health",
        check_health="""
            for worker_id, worker in enumerate(iterator._workers):
                if iterator._workers_status[worker_id] is WorkerState.ACTIVE and not worker.is_alive():
                    return worker_ended(iterator, worker_id)
            if any(status is WorkerState.EXHAUSTED for status in iterator._workers_status):
                return None
            thread = iterator._pin_memory_thread
            if thread is not None and not thread.is_alive():
                fail(iterator, "Pin memory thread exited unexpectedly")
        """,
    ),
    "all_dead": Wrong(
        "waits until all are dead",
        (IF_ACTIVE, f"{IF_ACTIVE[:-1]} and set(iterator._workers_status) == {{WorkerState.DEAD}}:"),
    ),
    "all_dead_health": Wrong(
        "waits until all are dead",
        (
            EACH_WORKER,
            f"if any(worker.is_alive() for worker in iterator._workers):\n        return\n    {EACH_WORKER}",
        ),
    ),
    "empty_queue": Wrong("an empty queue is taken for a death", (IS_DEAD, ":")),
    "false_alarm": Wrong("a finished worker is a false alarm", (IF_ACTIVE, "if status is not WorkerState.DEAD:")),
    "false_alarm_later": Wrong(
        "a finished worker is a false alarm",
        ("if iterator._workers_status[worker_id] is WorkerState.ACTIVE and", "if"),
        (ENDED, FAIL),
    ),
    "forgets_pinning": Wrong("the pin thread is forgotten", ("if iterator._pin_memory_thread is not None", "if False")),
    "keeps_watching": Wrong(
        "goes on watching an ended process", ("iterator._endings.remove(iterator._ending_of[worker_id])", "pass")
    ),
    "nameless": Wrong("the error names no worker", (FAIL, 'fail(iterator, "a worker has died")')),
    "not_noted": Wrong("does not note the death", (NOTE, "status = iterator._workers_status[worker_id]")),
    "not_staying": Wrong("the error does not stay", (FAIL, 'raise RuntimeError(f"worker {worker_id} has died")')),
    "overlooked": Wrong("a death is overlooked", (IF_ACTIVE, "if False:")),
    "overlooked_health": Wrong("a death is overlooked", (IS_DEAD, " and False:")),
    "too_late": Wrong("the death is noticed late", (ENDED, FAIL), (NOTE, "status = None")),
    "by_exit_code": Wrong(
        "a check of the health", (IF_ACTIVE, f"{IF_ACTIVE[:-1]} and iterator._workers[worker_id].exitcode != 0:")
    ),
    "none_active": Wrong(
        "a check of the health",
        (EACH_WORKER, f"if WorkerState.ACTIVE not in iterator._workers_status:\n        return\n    {EACH_WORKER}"),
    ),
}
