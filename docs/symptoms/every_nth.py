"""Every Nth batch is slow, where N is num_workers

The workers take longer for a batch than the training step does: N batches arrive at about the same time, one from each
worker, and then there is none until they have made the next N. It is not the Nth batch that is slow, but all of them.
The cure is more workers, if making a sample is mostly waiting (as here) or there are cores to spare; otherwise cheaper
samples.
"""

import sys
import time

from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> int:
        time.sleep(0.04)  # storage that takes its time
        return index


if __name__ == "__main__":
    workers = 16 if "cured" in sys.argv else 4
    loader = DataLoader(Remote(), batch_size=2, num_workers=workers, persistent_workers=True)
    # A worker that is late once stays just as late while main waits for every batch. At the end of an epoch main has
    # waited for all of them, so the workers begin the next one together.
    for epoch in range(6):
        waits = []
        iterator = iter(loader)
        for _ in range(len(loader)):
            begin = time.monotonic()
            next(iterator)
            waits.append(time.monotonic() - begin)
            time.sleep(0.001)  # the training step
        if epoch > 0:  # in the first, workers start one after the other
            print("waited for each batch, in ms:", *(f"{wait * 1000:.0f}" for wait in waits))
