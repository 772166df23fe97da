"""Every Nth batch takes long, N being num_workers

The workers need longer for a batch than the training step does: N batches come at about the same time, one from each
worker, and then there is none until they have made the next N. It is not the Nth batch that is slow, but all of them.
The cure is more workers, if a sample mostly waits (here it does) or cores are left; else cheaper samples.
"""

import sys
import time

from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> int:
        time.sleep(0.02)  # storage that takes its time
        return index


if __name__ == "__main__":
    workers = 16 if "cured" in sys.argv else 4
    waits = []
    iterator = iter(DataLoader(Remote(), batch_size=2, num_workers=workers))
    for _ in range(80):
        begin = time.monotonic()
        next(iterator)
        waits.append(time.monotonic() - begin)
        time.sleep(0.001)  # the training step
    print("waited for each batch, in ms:", *(f"{wait * 1000:.0f}" for wait in waits[16:]))
