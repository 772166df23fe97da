"""OSError: [Errno 24] Too many open files

A tensor from a worker is in shared memory, and main holds a file descriptor for it until the tensor is freed. A
program that keeps batches (a list of losses that are still tensors, a replay buffer) keeps their descriptors. The
limit is `ulimit -n`, often 1024; here it is lowered to 200, to reach it soon. The cure is to keep a copy instead of
the batch; or torch.multiprocessing.set_sharing_strategy("file_system"), which keeps no descriptor, but still a
mapping for each tensor (see mappings.py).
"""

import resource
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    cured = "cured" in sys.argv
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    kept = []
    for (batch,) in DataLoader(TensorDataset(torch.arange(1200)), batch_size=4, num_workers=1):
        kept.append(batch.clone() if cured else batch)
        time.sleep(0.005)  # the training step
    print(f"{len(kept)} batches kept")
