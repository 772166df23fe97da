"""What main knows about each worker and each task. torch keeps a bool for each worker, and for each task a tuple that
grows when its batch arrives.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

NOT_ARRIVED: Any = object()


class WorkerState(enum.Enum):
    ACTIVE = "can be given tasks"
    EXHAUSTED = "its iterable dataset has no more samples in this epoch"
    DEAD = "its process has ended"


@dataclass
class TaskInfo:
    """A task that was sent and not yet yielded. torch: a value of _task_info"""

    worker_id: int
    keys: Any
    data: Any = NOT_ARRIVED
    early: bool = False  # it arrived before its turn, and is in the reorder buffer

    @property
    def arrived(self) -> bool:
        return self.data is not NOT_ARRIVED
