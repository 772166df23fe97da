"""Exercise 9: wrong answers."""

from tests.exercises.wrong.edits import Wrong

EXHAUSTED = "self._workers_status[worker_id] = WorkerState.EXHAUSTED"
NEXT_TASK = "self._try_put_index()"
WILL_COME = "self._workers_status[info.worker_id] is WorkerState.ACTIVE"
IF_NOT_KEPT = "if not self._persistent_workers:"
NEVER_ENDED = ("if self.ended:", "if False:")
GATHER = "samples = []\n        for _ in keys:"
WRONG = {
    "told_too_late": Wrong(
        "sends to an ended worker",
        _worker_exhausted="""
            self._try_put_index()
            self._workers_status[worker_id] = WorkerState.EXHAUSTED
            if not self._persistent_workers:
                tell_to_stop(self, worker_id)
        """,
    ),
    "all_exhausted": Wrong(
        "the first worker's end ends all",
        _worker_exhausted="""
            self._workers_status = [WorkerState.EXHAUSTED] * self._num_workers
            if not self._persistent_workers:
                for each in range(self._num_workers):
                    tell_to_stop(self, each)
        """,
    ),
    "anew": Wrong(
        "opens the stream anew",
        ("from typing import Any", "import itertools\nfrom typing import Any"),
        (
            GATHER,
            "samples = list(itertools.islice(self.dataset_iter, len(keys)))\n"
            "        self.ended = len(samples) < len(keys)\n"
            "        for _ in ():",
        ),
    ),
    "empty_batch": Wrong("an empty batch at the end", NEVER_ENDED, ("if not samples or", "if")),
    "fetches_after": Wrong("fetches after the end", NEVER_ENDED),
    "first_end_ends_all": Wrong(
        "the first worker's end ends all",
        _worker_exhausted="""
            if not self._persistent_workers:
                self._shutdown_workers()
            raise StopIteration
        """,
    ),
    "leaves_entry": Wrong("leaves the task's entry", ("del self._task_info[self._rcvd_idx]", "pass")),
    "loses_short_batch": Wrong(
        "loses the short batch",
        NEVER_ENDED,
        (GATHER, "samples = [next(self.dataset_iter) for _ in keys]\n        for _ in ():"),
    ),
    "never_skips": Wrong("never skips the ended worker's tasks", (f"info.arrived or {WILL_COME}", "True")),
    "no_other_task": Wrong("no task in its place", (NEXT_TASK, "pass")),
    "no_status": Wrong("the ended worker counts as active", (EXHAUSTED, "pass")),
    "not_told": Wrong("the worker is not told", (IF_NOT_KEPT, "if False:")),
    "skips_active": Wrong("skips what will come", (f" or {WILL_COME}", "")),
    "skips_arrived": Wrong("skips what has come", ("info.arrived or ", "")),
    "skips_one": Wrong(
        "never skips the ended worker's tasks",
        ("while self._rcvd_idx < self._send_idx:", "if self._rcvd_idx < self._send_idx:"),
    ),
    "stops_persistent": Wrong("stops a persistent worker", (IF_NOT_KEPT, "if True:")),
    "asks_again": Wrong("the right batches", ("                break\n", "")),
}
