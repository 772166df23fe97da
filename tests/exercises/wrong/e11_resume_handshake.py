"""Exercise 11: wrong answers."""

from tests.exercises.wrong.edits import Wrong

ALL_ACTIVE = "self._workers_status = [WorkerState.ACTIVE] * self._num_workers"
IF_RESUMED = "if isinstance(message, Resumed) and message.epoch_id == self._epoch_id:"
DISCARD = "waiting_for.discard(message.worker_id)"
WRONG = {
    "active_at_last": Wrong(
        "a death in the handshake is overlooked",
        (ALL_ACTIVE, "pass"),
        ("except BaseException as error:", f"    {ALL_ACTIVE}\n        except BaseException as error:"),
    ),
    "any_message": Wrong("any message counts", (IF_RESUMED, "if True:"), (DISCARD, "waiting_for.pop()")),
    "any_of_each": Wrong("any message counts", (IF_RESUMED, "if True:")),
    "expects_the_dead": Wrong("a dead worker is expected to answer", ("if status is WorkerState.DEAD:", "if False:")),
    "first_one": Wrong("stops at the first acknowledgement", (DISCARD, "waiting_for.clear()")),
    "no_wait": Wrong("no wait", ("while waiting_for:", "while False:")),
    "not_the_last": Wrong("not every worker is told", ("in self._index_queues:", "in self._index_queues[:-1]:")),
    "stay_exhausted": Wrong("the workers stay exhausted", (ALL_ACTIVE, "pass")),
    "in_turn": Wrong(
        "an acknowledgement is dropped", (IF_RESUMED, f"{IF_RESUMED[:-1]} and message.worker_id == min(waiting_for):")
    ),
    "old_answers": Wrong("the steps of the handshake", (IF_RESUMED, "if isinstance(message, Resumed):")),
    "waits_for_ever": Wrong("the steps of the handshake", ("self._get_data(self._timeout)", "self._get_data(0)")),
    "raises_old_errors": Wrong(
        "the steps of the handshake",
        (
            f"                {IF_RESUMED}",
            "                if hasattr(getattr(message, 'data', None), 'reraise'):\n"
            "                    message.data.reraise()\n"
            f"                {IF_RESUMED}",
        ),
    ),
    "leaves_out_the_dead": Wrong(
        "a dead worker is left out",
        _resume_workers="""
            living = [k for k, status in enumerate(self._workers_status) if status is not WorkerState.DEAD]
            for k in living:
                self._workers_status[k] = WorkerState.ACTIVE
                self._index_queues[k].put(Resume(self._epoch_id))
            waiting_for = set(living)
            while waiting_for:
                message = self._get_data(self._timeout)
                if isinstance(message, Resumed) and message.epoch_id == self._epoch_id:
                    waiting_for.discard(message.worker_id)
        """,
    ),
}
