"""What all parts that emit have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minidl.events import NO_TASK

if TYPE_CHECKING:  # what stands behind a class that is put in front of torch's: torch's types leave out what is private
    from typing import Any as Behind
else:
    Behind = object

__all__ = ["Behind", "Progress", "Wrapper"]


class Progress:
    """How far one side of an iterator is: main, or one of its workers. What wraps torch's parts there shares it."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch_id = epoch_id  # of the last message; events that concern no message belong to it
        self.task = NO_TASK  # what this side works on: a worker, or main if it has no workers
        self.outstanding = 0  # main: tasks sent, less the results received


class Wrapper:
    """An object in front of another one: every attribute that it does not define is the other one's."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)
