"""How far one side of an iterator is: main, or one of its workers. What wraps torch's parts there shares it."""

from __future__ import annotations

from minidl.events import NO_TASK


class Progress:
    def __init__(self, epoch_id: int) -> None:
        self.epoch_id = epoch_id  # of the last message; events that concern no message belong to it
        self.task = NO_TASK  # what this side works on: a worker, or main if it has no workers
        self.outstanding = 0  # main: tasks sent, less the results received
