"""Where a task's events are in the trace, which keys the task was made of, and what was noted of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minidl.events import Kind
from tracing.trace.event_index import HOP, NEVER
from tracing.trace.event_index import Iterator as IndexedIterator
from tracing.trace.trace import Trace


def position_of(trace: Trace, loader: int, epoch: int, task: int, hop: str, k: int = NEVER - 1) -> int:
    """The position of a task's event at a hop ("keys_drawn"); -1 if that has not happened up to event k."""
    found = trace.index.epochs.get(int(loader) << 32 | int(epoch))
    if found is None or not 0 <= task < found.length:
        return -1
    position = int(found.table[HOP[hop], task])
    return position if position <= k else -1


def keys_of(trace: Trace, loader: int, epoch: int, task: int, k: int = NEVER - 1) -> Any:
    """The keys that were drawn for a task; None if they are not known up to event k, or of a stream, which has none."""
    drawn = position_of(trace, loader, epoch, task, "keys_drawn", k)
    keys: Any = trace.text(drawn) if drawn >= 0 else None
    return None if isinstance(keys, list) and keys.count(None) == len(keys) else keys


def noted_of(trace: Trace, iterator: IndexedIterator) -> Iterator[tuple[int, dict[str, Any]]]:
    """What was noted of batches, once per worker and epoch, and at which positions."""
    positions = trace.index.group(iterator.number, Kind.COLLATE_END).array
    for position in positions[trace.events["text"][positions] > 0].tolist():
        if isinstance(noted := trace.text(position), dict):  # else it is lost: the file is damaged
            yield position, noted
