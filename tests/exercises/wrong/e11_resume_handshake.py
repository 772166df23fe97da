"""Exercise 11: wrong answers."""

from tests.exercises.wrong.edits import Wrong

ALL_ACTIVE = "self._workers_status = [WorkerState.ACTIVE] * self._num_workers"
IF_RESUMED = "if isinstance(message, Resumed) and message.epoch_id == self._epoch_id:"
DISCARD = "waiting_for.discard(message.worker_id)"
WRONG = {
    "active_at_last": Wrong(
        "a death in the handshake is overlooked",
        (ALL_ACTIVE, "pass"),
        ("self._in_use = False", f"self._in_use = False\n            {ALL_ACTIVE}"),
    ),
    "any_message": Wrong("any message counts", (IF_RESUMED, "if True:"), (DISCARD, "waiting_for.pop()")),
    "any_of_each": Wrong("any message counts", (IF_RESUMED, "if True:")),
    "expects_the_dead": Wrong("a dead worker is expected to answer", ("if status is WorkerState.DEAD:", "if False:")),
    "first_one": Wrong("stops at the first acknowledgement", (DISCARD, "waiting_for.clear()")),
    "no_wait": Wrong("no wait", ("while waiting_for:", "while False:")),
    "not_the_last": Wrong("not every worker is told", ("in self._index_queues:", "in self._index_queues[:-1]:")),
    "stay_exhausted": Wrong("the workers stay exhausted", (ALL_ACTIVE, "pass")),
}
