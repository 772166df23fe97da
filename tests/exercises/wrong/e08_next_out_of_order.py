"""Exercise 8: wrong answers."""

from tests.exercises.wrong.edits import Wrong

POP = "self._task_info.pop(task_id)"
ENTRY = "self._task_info[task_id]"
NEVER_LOOKS = ("if self._task_info[there].arrived:", "if False:")
LOOKS_AT_ONE = ("in [self._rcvd_idx] if self._in_order else self._task_info:", "in [self._rcvd_idx]:")
NEVER_SKIPS = ("self._skip_unfulfilled()", "pass")
COUNTS_EACH = ("if task_id == self._rcvd_idx:", "if True:")
WRONG = {
    "ends_early": Wrong("ends too early", NEVER_LOOKS, COUNTS_EACH),
    "error_first": Wrong(
        "an error breaks the epoch",
        NEVER_LOOKS,
        _take="""
            info = self._task_info[task_id]
            if isinstance(info.data, ExceptionWrapper):
                info.data.reraise()
            self._try_put_index()
            del self._task_info[task_id]
            if task_id == self._rcvd_idx:
                self._rcvd_idx += 1
            return info.data
        """,
    ),
    "gives_up": Wrong("gives up at a full worker", ("in range(self._num_workers):", "in range(1):")),
    "gone": Wrong("looks for an entry that is gone", NEVER_SKIPS, LOOKS_AT_ONE),
    "leaks": Wrong("leaks the task's entry", NEVER_SKIPS, NEVER_LOOKS, COUNTS_EACH, (POP, ENTRY)),
    "leaks_and_skips": Wrong("leaks the task's entry", NEVER_LOOKS, (POP, ENTRY)),
    "looks_at_one": Wrong("the right batches", LOOKS_AT_ONE),
    "never_ends": Wrong("never sees the end", NEVER_SKIPS, NEVER_LOOKS),
    "no_capacity": Wrong("ignores capacity", ("self._workers_num_tasks[worker_id] < max_tasks // active", "True")),
    "still_waits": Wrong("still waits", LOOKS_AT_ONE, ("if task_id is not None and not self._in_order:", "if False:")),
    "waits_for_what_is_there": Wrong("comes to an end", NEVER_LOOKS),
}
