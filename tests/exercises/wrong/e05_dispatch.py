"""Exercise 5: wrong answers."""

from tests.exercises.wrong.edits import Wrong

AS_MANY_AS_ALLOWED = "range(self._prefetch_factor * self._num_workers)"
EACH_WORKER_ONCE = "for _ in range(self._num_workers):"
NOTHING_CAUGHT = (
    "        try:\n            keys = self._next_keys()\n        except StopIteration:\n            return\n",
    "        keys = self._next_keys()\n",
)
WRONG = {
    "turn_by_one": Wrong(
        "the right batches",
        _choose_worker="""
            for number in range(self._num_workers):
                worker_id = (self._next_worker + number) % self._num_workers
                if self._workers_status[worker_id] is WorkerState.ACTIVE:
                    self._next_worker = (self._next_worker + 1) % self._num_workers
                    return worker_id
            return None
        """,
    ),
    "caught_in_prime": Wrong(
        "StopIteration escapes",
        NOTHING_CAUGHT,
        _prime="""
            try:
                for _ in range(self._prefetch_factor * self._num_workers):
                    self._try_put_index()
            except StopIteration:
                pass
        """,
    ),
    "ended_worker": Wrong(
        "sends to an ended worker",
        _choose_worker="""
            worker_id = self._next_worker
            self._next_worker = (worker_id + 1) % self._num_workers
            return worker_id
        """,
    ),
    "for_ever": Wrong("never returns", (EACH_WORKER_ONCE, "while True:")),
    "no_count": Wrong("does not count", ("self._tasks_outstanding += 1", "pass")),
    "no_entry": Wrong(
        "no entry in _task_info", ("self._task_info[self._send_idx] = TaskInfo(worker_id, keys)", "pass")
    ),
    "nobody_left": Wrong("no worker is left", ("if worker_id is None:", "if False:")),
    "one_each": Wrong("primes one task a worker", (AS_MANY_AS_ALLOWED, "range(self._num_workers)")),
    "primes_prefetch_only": Wrong("primes prefetch_factor only", (AS_MANY_AS_ALLOWED, "range(self._prefetch_factor)")),
    "same_number": Wrong("the same number again", ("self._send_idx += 1", "pass")),
    "same_worker": Wrong(
        "always the same worker",
        (EACH_WORKER_ONCE, "for step in range(self._num_workers):"),
        ("worker_id = self._next_worker", "worker_id = (self._next_worker + step) % self._num_workers"),
        ("self._next_worker = (self._next_worker + 1) % self._num_workers", "pass"),
    ),
    "stop_iteration": Wrong("StopIteration escapes", NOTHING_CAUGHT),
    "the_fewest": Wrong(
        "the worker with the fewest",
        _choose_worker="""
            active = [k for k, status in enumerate(self._workers_status) if status is WorkerState.ACTIVE]
            return min(active, key=lambda worker_id: self._workers_num_tasks[worker_id], default=None)
        """,
    ),
    "worker_0_first": Wrong(
        "fills worker 0 first",
        _choose_worker="""
            for worker_id, status in enumerate(self._workers_status):
                if status is WorkerState.ACTIVE and self._workers_num_tasks[worker_id] < self._prefetch_factor:
                    return worker_id
            return None
        """,
    ),
}
