"""Programs that hang: `python -m tests.tracing.hanging NAME DIR`. Whoever starts one kills it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import minidl
import tracing

for_ever = threading.Event()


class Blocks(minidl.Dataset):
    """Sample 9 never comes."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index == 9:
            for_ever.wait()
        return index


class Nests(Blocks):
    """Sample 9 comes out of a loader that hangs."""

    def __getitem__(self, index: int) -> int:
        return sum(len(batch) for batch in minidl.DataLoader(Blocks(), 3)) if index == 9 else index


class Locked(Blocks):
    """Sample 9 needs a lock that was held when the workers were forked."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()

    def __getitem__(self, index: int) -> int:
        if index == 9:
            self.lock.acquire()
        return index


DATASETS: dict[str, Any] = {"blocks": Blocks, "nests": Nests, "locked": Locked, "trains": lambda: range(40)}

if __name__ == "__main__":
    name, directory = sys.argv[1:]
    with tracing.record(Path(directory)):
        for number, _batch in enumerate(minidl.DataLoader(DATASETS[name](), batch_size=2, num_workers=2)):
            if name == "trains" and number == 3:
                for_ever.wait()
