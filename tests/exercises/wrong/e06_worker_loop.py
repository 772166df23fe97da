"""Exercise 6: wrong answers."""

from tests.exercises.wrong.edits import Wrong

NOT_SKIPPED = "not self.job.done.is_set() and not self.stream_ended"
PUT = "                self.result_queue.put("
RESULT = "Result(message.epoch_id, message.task_id, self.job.worker_id, data, room)"
WRAPPED = 'return ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")'
IF_FAILURE = "if self.failure is not None:"
IF_RESUME = "if isinstance(message, Resume):"
WRONG = {
    "looks_for_ctrl_c_too_late": Wrong(
        "a worker alone",
        ("while not self.interrupted:", "while True:"),
        ("del message", "if self.interrupted:\n                break\n            del message"),
    ),
    "after_done": Wrong("goes on fetching after the done event", (NOT_SKIPPED, "not self.stream_ended")),
    "after_stream_end": Wrong("fetches after its stream's end", (NOT_SKIPPED, "not self.job.done.is_set()")),
    "as_a_batch": Wrong("the exception as a batch", (WRAPPED, "return error")),
    "bare_batch": Wrong("loses the task id", (RESULT, "data")),
    "done_before_get": Wrong(
        "goes on fetching after the done event",
        ("while not self.interrupted:", "while not self.interrupted and not self.job.done.is_set():"),
        (NOT_SKIPPED, "not self.stream_ended"),
        ("return End.INTERRUPTED", "return End.INTERRUPTED if self.interrupted else End.STOPPED"),
    ),
    "ends_with_stream": Wrong(
        "ends with its stream",
        ("            del message", "            if self.stream_ended:\n                return End.STOPPED"),
    ),
    "error_for_keys": Wrong("takes an error for keys", ("if isinstance(task.keys, ExceptionWrapper):", "if False:")),
    "ignores_failure": Wrong("ignores self.failure", (IF_FAILURE, "if False:")),
    "kills_the_worker": Wrong("an exception kills the worker", (WRAPPED, "raise")),
    "main_dead": Wrong("ignores the end of main", ("return End.PARENT_DIED", "continue")),
    "misspelt": Wrong("raises", (IF_FAILURE, "if self.failed is not None:")),
    "no_answer": Wrong(
        "an exception is not answered",
        (WRAPPED, 'print(f"worker {worker_id}: {error}")\n            return None'),
        (PUT, f"                if data is not None:\n    {PUT}"),
    ),
    "no_died": Wrong("ignores the end of main", ("if isinstance(message, Died):", "if False:")),
    "no_resume": Wrong("ignores Resume", (IF_RESUME, "if False:")),
    "no_start": Wrong("never starts", ("self.start()", "pass")),
    "no_try": Wrong("an exception kills the worker", ("except Exception as error:", "except StopIteration as error:")),
    "own_count": Wrong(
        "loses the task id",
        ("self.start()", "self.start()\n        done = -1"),
        (PUT, f"                done += 1\n{PUT}"),
        ("message.task_id, self.job", "done, self.job"),
    ),
    "skips_resume": Wrong(
        "ignores Resume", (IF_RESUME, f"if not ({NOT_SKIPPED}):\n                continue\n            {IF_RESUME}")
    ),
    "stream_error": Wrong(
        "the end of a stream as an error", ("if isinstance(error, StopIteration) and", "if False and")
    ),
    "iterable_at_all": Wrong(
        "the right batches",
        ("isinstance(self.job.dataset, torch.utils.data.IterableDataset)", 'hasattr(self.job.dataset, "__iter__")'),
    ),
    "no_batch": Wrong("no batch", (WRAPPED, "return None")),
    "skips_all": Wrong("a task is not answered", (NOT_SKIPPED, "False")),
}
