"""Exercise 11: the resume handshake.

With `persistent_workers` the second epoch uses the same workers as the first. If the first was
abandoned, they are still busy with its tasks, and its batches are still in the queues. The new
epoch also counts its tasks from 0, and an old batch 3 must not be taken for the new one. So there
is a handshake, for you to write: main sends every worker a Resume; each worker answers with a
Resumed, which comes after everything it had sent before; and main sends no task until all have
answered. Anything else that arrives meanwhile belongs to the old epoch, and is dropped.

`_resume_workers` is called at the beginning of every epoch except the first. It also marks the
workers as ACTIVE: their streams start again, and from now on a death counts. A worker that died
earlier, after its stream had ended, is DEAD: call fail_for_death, which raises.

You may leave out the calls of `emit` and the handling of Ctrl-C.

Legend
    self._workers_status           [WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one per worker; or
                                   WorkerState.DEAD
    self._index_queues             one per worker: queue.put(message) sends it a message
    Resume                         Resume(epoch_id): tells a worker that a new epoch begins
    self._epoch_id                 4294967297: of the new epoch (made of the loader's number and the
                                   epoch's)
    self._get_data(self._timeout)  waits for the next message from any worker: Resumed(epoch_id,
                                   worker_id), a Result of the old epoch, or a Resumed of an old one
                                   whose handshake was interrupted. Raises if an ACTIVE worker dies,
                                   or nothing comes in time
    self._num_workers              2
    fail_for_death                 fail_for_death(self, worker_id): raises a RuntimeError that names
                                   the dead worker

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 11`; `hint 11` helps.
It goes with notebooks/09-epochs.ipynb.
"""

from __future__ import annotations

from minidl.deaths import fail_for_death
from minidl.events import RESUME_ACKNOWLEDGED, emit
from minidl.messages import Resume, Resumed
from minidl.states import WorkerState


class ParallelIterator:
    def _resume_workers(self) -> None:
        """The handshake: nothing of the new epoch is sent before every worker has left the old one behind. What
        else arrives meanwhile belongs to the abandoned epoch, and is dropped.
        """
        raise NotImplementedError
