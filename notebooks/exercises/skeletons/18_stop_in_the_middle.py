"""Exercise 18: stop in the middle.

A loader is stopped after some batches, and a new process goes on from its `state_dict()`. The new
one must yield what would have come: nothing is lost, nothing comes twice, though at every moment
some batches are in flight. Write what main keeps for this. The result is `snapshot`: what is true
after the batches that were *yielded*. `state_dict` makes a state of it.

Each worker's dataset has a *place*: its own state, its stream's, and the random generators. Only
the worker knows it, and says with each batch what has changed.

Every epoch has a Position of its own. `begin` is called when the epoch begins, with Snapshot(0, 1,
[None, None]) if there are two workers, and when a stopped one goes on, with the snapshot that it
goes on from: everything is then as it was.

`heard` is called with each message when it arrives, in whatever order, and returns it. A Result
brings what has changed in its worker's place up to and including that batch. A Resumed, from a
persistent worker at the beginning of an epoch, brings the whole place: this one counts at once,
also in the snapshot.

`passed` is called when a task's turn is over: its batch is yielded, or the exception that came
instead is raised (then `yielded` is False). After every `interval` tasks that have passed a new
snapshot replaces the old one. In between the old one stays as it is: the new process will load once
more, for nobody, all that came since. So a task stays in `in_flight` until a snapshot is taken in
which it has passed. (Mostly `interval` is 1, and always with streams and with persistent workers.)

`finish` is called at the end of the epoch: the iterator is `finished`. What is left in `arrived`
comes from streams that have ended. It is no batch, but treat it like a task that has passed: it may
bring a place, too.

Without workers there are no messages, and `passed` is called with tasks that are not in `arrived`;
their worker is 0. (You may use fields of your own. You may leave out the case that a dataset's
`state_dict()` has failed in a worker, and `place` is an ExceptionWrapper.)

Legend
    Snapshot(4, 1, places)  steps: batches yielded in this epoch; last_worker: the worker whose task
                            passed last; places: [{...}, None], the place of each worker, None if it
                            is not known yet
    self.snapshot           the last one. The fields self.steps and self.places are for the same two
                            as they are now; `state_dict` reads self.snapshot, self.steps and the
                            length of self._passed
    message                 Result(task_id=5, worker_id=1, place=...), or Resumed(worker_id=1,
                            place=...), whose task_id is negative
    message.place           {"place": b"...", "torch": b"..."}: what has changed of a place, in
                            parts; at first all of them. None: nothing has
    self.arrived            {5: (1, place)}: task -> worker and place, until the task has passed.
                            Main reads it, too
    self.in_flight          {4: ..., 5: ...}: the tasks whose keys were drawn; you only take them
                            out. Those of a stream are not in it: their keys say nothing
    self._passed            [3]: the tasks that have passed since the snapshot
    self.interval           1: tasks from one snapshot to the next
    self.finished           False

Your methods, and helpers, are put into minidl's class. Its __init__ stays: make a field of your own
when you first need it.

Check it with `python -m notebooks.exercises check 18`; `hint 18` helps.
It goes with notebooks/19-stop-in-the-middle.ipynb.
"""

from __future__ import annotations

from dataclasses import replace

from torch._utils import ExceptionWrapper

from minidl.checkpoint.position import Snapshot
from minidl.messages import Result, Resumed


class Position:
    def begin(self, snapshot: Snapshot) -> None:
        raise NotImplementedError

    def heard(self, message: Result | Resumed) -> Result | Resumed:
        """A worker has told its dataset's place, which counts once the batch is yielded. If it could not, its error
        takes the batch's stead.
        """
        raise NotImplementedError

    def passed(self, task_id: int, yielded: bool) -> None:
        """A task's turn is over: its batch is yielded, or its error raised."""
        raise NotImplementedError

    def finish(self) -> None:
        """The epoch is over. What is left has been told by workers whose streams had ended."""
        raise NotImplementedError
