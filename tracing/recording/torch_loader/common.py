"""What all parts that emit have in common, and the epochs of torch's loaders."""

from __future__ import annotations

import os
import weakref
from typing import Any

from minidl.events import NO_TASK, NO_WORKER, new_loader

# What stands behind a class that is put in front of torch's; Any, as torch's types leave out what is private.
Behind: Any = object


class Progress:
    """How far one side of an iterator is: main, or one of its workers. What wraps torch's parts there shares it."""

    def __init__(self, epoch_id: int) -> None:
        self.epoch_id = epoch_id  # of the last message; events that concern no message belong to it
        self.task = NO_TASK  # what this side works on; in main, beside workers, what it received, or popped, last
        self.outstanding = 0  # main: tasks sent, less the results received


class Wrapper:
    """An object in front of another one: every attribute that it does not define is the other one's."""

    def __init__(self, wrapped: Any, progress: Progress, worker: int = NO_WORKER) -> None:
        self.wrapped = wrapped
        self.progress = progress
        self.worker = worker  # which one it is about, or is used by; NO_WORKER: every one

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


# ---- the epochs of a loader

# By id, with a weak reference: each loader, and the process and epoch_id of its last pass. Not an attribute of the
# loader, which is pickled and copied as before, and not a WeakKeyDictionary: a subclass may define its own comparison.
_known: dict[int, tuple[weakref.ref[Any], int, int]] = {}


def next_epoch_of(loader: Any) -> int:
    """The epoch_id of the next pass over it. A loader that a worker inherited inside its dataset gets a new number."""
    key, pid = id(loader), os.getpid()
    _, owner, last = _known.get(key, (None, 0, 0))
    epoch_id = last + 1 if owner == pid else new_loader()
    _known[key] = weakref.ref(loader, lambda _: _known.pop(key, None)), pid, epoch_id
    return epoch_id
