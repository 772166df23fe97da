"""It is faster without workers

The samples are in memory already, and collating a few of them is quick. To get a batch out of a worker's process takes
longer than to make it: pickling, a pipe, a descriptor for its tensor, unpickling. The cure is num_workers=0.
"""

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    samples = TensorDataset(torch.arange(4000.0))
    workers = 0 if "cured" in sys.argv else 2
    begin = time.monotonic()
    batches = sum(1 for _ in DataLoader(samples, batch_size=2, num_workers=workers))
    print(f"{batches} batches in {time.monotonic() - begin:.2f} s")
