"""More workers change nothing

The workers wait for each other: whatever reads the samples can do so for one at a time. Here each of them locks the
file that it reads. Four workers make no more batches than one would. The cure is to read without the lock, from a copy
or a connection of each worker's own.
"""

import fcntl
import sys
import time

from torch.utils.data import DataLoader, Dataset


class Stored(Dataset):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> int:
        with open(__file__) as file:
            if "cured" not in sys.argv:
                fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.01)  # reads
        return index


if __name__ == "__main__":
    begin = time.monotonic()
    batches = sum(1 for _ in DataLoader(Stored(), batch_size=4, num_workers=4))
    print(f"{batches} batches in {time.monotonic() - begin:.1f} s")
