"""RuntimeError: unable to mmap 32 bytes from file </torch_123_456_7>: Cannot allocate memory (12)

There is memory left, but no mapping. Each tensor from a worker is a mapping of its own until it is freed, and a process
may have 65,530 of them (`sysctl vm.max_map_count`). A program that keeps its batches gets there in hours; this one uses
up most of them first, to get there at once. The cure is to keep copies.
"""

import mmap
import sys
from pathlib import Path

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, TensorDataset


def use_up(left: int) -> list[mmap.mmap]:
    """Make mappings until only this many are left. (Neighbours with equal rights would be merged into one.)"""
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    used = len(Path("/proc/self/maps").read_text().splitlines())
    rights = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
    return [mmap.mmap(-1, mmap.PAGESIZE, prot=rights[i % 2]) for i in range(limit - used - left)]


if __name__ == "__main__":
    cured = "cured" in sys.argv
    torch.multiprocessing.set_sharing_strategy("file_system")  # otherwise descriptors would run out first
    loader = iter(DataLoader(TensorDataset(torch.arange(4000)), batch_size=4, num_workers=1))
    kept = [next(loader)]
    others = use_up(left=300)
    for (batch,) in loader:
        kept.append(batch.clone() if cured else batch)
    print(f"{len(kept)} batches kept")
