"""Memory grows with every batch of the first epoch, in every worker, until the machine is full

A forked worker shares the dataset's memory with main until either writes to it. Reading a Python object writes to it:
its reference count. So page after page of a large list of strings or dicts gets copied, in every worker. Where each
epoch starts new workers, that looks like a sawtooth. The cure is one large buffer instead of many objects: a numpy
array or a tensor has one reference count for all of it.
"""

import sys

import numpy as np
from torch.utils.data import DataLoader, Dataset

SIZE = 2_000_000


class Names(Dataset):
    def __init__(self, names: "list[str] | np.ndarray") -> None:
        self.names = names

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> int:
        part = self.names[index * SIZE // 200 : (index + 1) * SIZE // 200]
        return len(part) if isinstance(part, np.ndarray) else sum(len(name) > 0 for name in part)


def private_megabytes() -> float:
    """The memory that this process shares with no other."""
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private")) / 1024


class Measured(Names):
    """Each sample is the size of its worker's own memory."""

    def __getitem__(self, index: int) -> float:
        super().__getitem__(index)
        return private_megabytes()


if __name__ == "__main__":
    names = [f"image number {number} of many" for number in range(SIZE)]
    data = Measured(np.array(names) if "cured" in sys.argv else names)
    own = [float(batch[-1]) for batch in DataLoader(data, batch_size=20, num_workers=1)]
    print(f"the worker's own memory grew by {own[-1] - own[0]:.0f} MB")
