"""Exercise 7: wrong answers."""

from tests.exercises.wrong.edits import Wrong

IF_ARRIVED = "if self._task_info[there].arrived:"
IF_ANY = "if task_id is not None and not self._in_order:"
IF_DUE = "if task_id == self._rcvd_idx:"
REFILL = "self._try_put_index()"
WRONG = {
    "exception_as_batch": Wrong("hands out an exception", ("if isinstance(info.data, ExceptionWrapper):", "if False:")),
    "keeps": Wrong("keeps what it has handed out", ("self._task_info.pop(task_id)", "self._task_info[task_id]")),
    "never_looks": Wrong("never looks into the buffer", (IF_ARRIVED, "if False:"), (IF_ANY, IF_DUE)),
    "no_buffer": Wrong("no buffer", (IF_ARRIVED, "if False:"), (IF_ANY, "if True:"), (IF_DUE, "if True:")),
    "no_count_of_worker": Wrong(
        "loses count of a worker's tasks", ("self._workers_num_tasks[result.worker_id] -= 1", "pass")
    ),
    "on_receipt": Wrong(
        "refills on receipt", (REFILL, "pass"), ("return result.task_id", f"{REFILL}\n        return result.task_id")
    ),
    "sends_nothing": Wrong("sends nothing new", (REFILL, "pass")),
    "sends_too_much": Wrong("sends too much", ("self._tasks_outstanding -= 1", "pass")),
    "ends_too_early": Wrong(
        "ends too early", ("if self._rcvd_idx == self._send_idx:", "if not self._tasks_outstanding:")
    ),
    "its_own_timeout": Wrong("the right batches", ("self._get_data(timeout)", "self._get_data(self._timeout)")),
    "sends_all_home": Wrong("the right batches", ("if not self._persistent_workers:", "if True:")),
    "no_batch": Wrong("hands out no batch", ("return info.data", "return None")),
    "error_first": Wrong(
        "an error out of turn",
        _next_task="""
            if self._rcvd_idx == self._send_idx:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            while not self._task_info[self._rcvd_idx].arrived:
                task_id = self._receive(self._timeout)
                if task_id is not None and isinstance(self._task_info[task_id].data, ExceptionWrapper):
                    return task_id
            return self._rcvd_idx
        """,
        _take="""
            self._try_put_index()
            data = self._task_info.pop(task_id).data
            while self._rcvd_idx < self._send_idx and self._rcvd_idx not in self._task_info:
                self._rcvd_idx += 1
            if isinstance(data, ExceptionWrapper):
                data.reraise()
            return data
        """,
    ),
}
