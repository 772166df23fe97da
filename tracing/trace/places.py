"""Where main is: what its time goes to, told by its events.

Legend
    place    WAITING          what main does from one of its events to the next
    phase    STARTUP          ... and in which part of an epoch: it decides, but for drawing keys and loading
"""

from __future__ import annotations

import enum

import numpy as np

from minidl.events import Kind
from tracing.trace.state import MainStatus
from tracing.trace.statuses import MAIN_STATUS


class Place(enum.IntEnum):
    """What main's time goes to. The values index an array of sums."""

    OUTSIDE = 0  # before, between and after the epochs: no concern of the loader
    STARTUP = 1  # builds the iterator, starts workers, waits for the first batch of an epoch
    TRAINING = 2  # not in the loader: the training step
    WAITING = 3  # waits for a message
    DRAWING = 4  # asks the sampler for keys
    TAKING = 5  # unpickles a batch
    LOADING = 6  # without workers: fetches, collates, pins itself
    HANDLING = 7  # the loader's own bookkeeping
    SHUTDOWN = 8


PLACE_OF = np.full(256, Place.HANDLING)
for _kind, _status in MAIN_STATUS.items():
    PLACE_OF[_kind] = {
        MainStatus.TRAINING: Place.TRAINING,
        MainStatus.WAITING: Place.WAITING,
        MainStatus.DRAWING: Place.DRAWING,
        MainStatus.TAKING: Place.TAKING,
        MainStatus.FETCHING: Place.LOADING,
        MainStatus.COLLATING: Place.LOADING,
        MainStatus.PINNING: Place.LOADING,
        MainStatus.RAISED: Place.OUTSIDE,
    }.get(_status, Place.HANDLING)
PLACE_OF[Kind.GOT] = Place.HANDLING  # what was unpickled is there

# Between these events main is where the phase says, whatever it does in detail (but for drawing and loading).
PHASE_FROM = {
    Kind.LOADER: Place.STARTUP,
    Kind.EPOCH_BEGIN: Place.STARTUP,
    Kind.YIELDED: Place.TRAINING,
    Kind.EPOCH_END: Place.OUTSIDE,
    Kind.SHUTDOWN_BEGIN: Place.SHUTDOWN,
    Kind.SHUTDOWN_END: Place.OUTSIDE,
}
PHASE_OF = np.full(256, -1)
PHASE_OF[list(PHASE_FROM)] = list(PHASE_FROM.values())


def places(kinds: np.ndarray) -> np.ndarray:
    """Where main is after each of its events, shape (n,), from their kinds in time order."""
    marks = PHASE_OF[kinds]
    since = np.maximum.accumulate(np.where(marks >= 0, np.arange(len(marks)), 0))
    phase, place = np.maximum(marks[since], Place.OUTSIDE), PLACE_OF[kinds]
    # Drawing keys, and without workers loading, counts as that also while an epoch starts.
    special = (phase == Place.STARTUP) & ((place == Place.DRAWING) | (place == Place.LOADING))
    return np.where((phase == Place.TRAINING) | special, place, phase)
