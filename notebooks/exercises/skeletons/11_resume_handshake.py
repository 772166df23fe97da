"""Exercise 11: the resume handshake.

With `persistent_workers` the second epoch has the same workers as the first. If the first was left
half way, they are still busy with its tasks, and its batches are still in the queues: the new epoch
also counts its tasks from 0, and an old batch 3 must not be taken for the new one. Hence the
handshake, which is yours to write: main sends every worker a Resume; each worker answers with a
Resumed once it has taken it, after all that it had sent before; and main sends no task before all
have answered. What else arrives meanwhile belongs to the old epoch, and is dropped.

`_resume_workers` is called at the beginning of every epoch but the first. It also marks the workers
as ACTIVE: in the new epoch a stream that had ended begins again, and a worker that dies from now on
is missed. One that has died before, when its stream had ended and nobody missed it, is DEAD: call
fail_for_death, which raises.

The calls of `emit` may be left out, and so may `_in_use` and the care for Ctrl-C.

Legend
    self._workers_status           [WorkerState.ACTIVE, WorkerState.EXHAUSTED]: one for each worker;
                                   or WorkerState.DEAD
    self._index_queues             one for each worker: queue.put(message) sends it a message
    Resume                         Resume(epoch_id): the message that a new epoch begins
    self._epoch_id                 4294967297: the new epoch's (the loader's number, and the
                                   epoch's)
    self._get_data(self._timeout)  waits for the next message of any worker: Resumed(epoch_id,
                                   worker_id), or a Result of the old epoch. The death of an ACTIVE
                                   worker is raised
    self._num_workers              2
    fail_for_death                 fail_for_death(self, worker_id): raises a RuntimeError that says
                                   who died

Check it with `python -m notebooks.exercises check 11`; `hint 11` helps.
It belongs to notebooks/09-epochs.ipynb.
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
