"""Which of torch's loaders are attached, and the numbers of their epochs."""

from __future__ import annotations

import os
import weakref
from typing import Any

from minidl import events


class Epochs:
    """Numbers the passes over one loader."""

    def __init__(self) -> None:
        self._pid = 0
        self._loader = self._epoch = 0

    def next(self) -> int:
        """The epoch_id of the next pass. A loader that a worker inherited inside its dataset gets a new number."""
        if self._pid != os.getpid():
            self._pid, self._loader, self._epoch = os.getpid(), events.new_loader(), -1
        self._epoch += 1
        return events.epoch_id(self._loader, self._epoch)


# By id, with a weak reference. Not an attribute of the loader, which is pickled and copied as before, and not a
# WeakKeyDictionary: a subclass may define its own comparison.
known: dict[int, tuple[weakref.ref[Any], Epochs]] = {}
every = False  # whether all loaders are attached, as by `tracing run`


def add(loader: Any) -> Epochs:
    """Attach a loader, and count its epochs from the start."""
    key, epochs = id(loader), Epochs()
    known[key] = weakref.ref(loader, lambda _: known.pop(key, None)), epochs
    return epochs


def is_attached(loader: Any) -> bool:
    return every or id(loader) in known


def epochs_of(loader: Any) -> Epochs:
    """The epochs of a loader, which is attached now if it was not yet."""
    return known[id(loader)][1] if id(loader) in known else add(loader)
