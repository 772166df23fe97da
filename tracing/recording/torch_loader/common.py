"""What all parts that emit have in common, and which of torch's loaders are attached. (Without torch itself: the
program imports that.)"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from minidl import events

if TYPE_CHECKING:  # what stands behind a class that is put in front of torch's: torch's types leave out what is private
    from typing import Any as Behind
else:
    Behind = object

__all__ = ["Behind", "Progress", "Wrapper", "epochs_of", "is_attached"]


class Progress:
    """How far one side of an iterator is: main, or one of its workers. What wraps torch's parts there shares it."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch_id = epoch_id  # of the last message; events that concern no message belong to it
        self.task = events.NO_TASK  # what this side works on: a worker, or main if it has no workers
        self.outstanding = 0  # main: tasks sent, less the results received


class Wrapper:
    """An object in front of another one: every attribute that it does not define is the other one's."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


# ---- attached loaders


class Epochs:
    """Numbers the passes over one loader."""

    def __init__(self) -> None:
        self._pid = 0
        self._epoch_id = 0

    def next(self) -> int:
        """The epoch_id of the next pass. A loader that a worker inherited inside its dataset gets a new number."""
        if self._pid != os.getpid():
            self._pid, self._epoch_id = os.getpid(), events.new_loader()
        else:
            self._epoch_id += 1
        return self._epoch_id


# By id, with a weak reference. Not an attribute of the loader, which is pickled and copied as before, and not a
# WeakKeyDictionary: a subclass may define its own comparison.
known: dict[int, tuple[weakref.ref[Any], Epochs]] = {}
every = False  # whether all loaders are attached, as by `tracing run`


def is_attached(loader: Any) -> bool:
    return every or id(loader) in known


def epochs_of(loader: Any) -> Epochs:
    """The epochs of a loader, which is attached now if it was not yet."""
    key = id(loader)
    if key not in known:
        known[key] = weakref.ref(loader, lambda _: known.pop(key, None)), Epochs()
    return known[key][1]
