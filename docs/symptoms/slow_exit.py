"""The program hangs for a few seconds when it should end

A worker does not exit: a thread that the dataset started in it is still at work, and Python waits for threads before a
process ends. Main waits five seconds for each worker, then sends SIGTERM. The cure is to stop what the dataset started,
or to make its threads daemons, which Python does not wait for.
"""

import sys
import threading
import time

from torch.utils.data import DataLoader, Dataset


class Prefetching(Dataset):
    def __init__(self, daemon: bool) -> None:
        self.daemon = daemon
        self.thread: threading.Thread | None = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if self.thread is None:  # one in each worker
            self.thread = threading.Thread(target=time.sleep, args=(3600,), daemon=self.daemon)
            self.thread.start()
        return index


if __name__ == "__main__":
    begin = time.monotonic()
    batches = list(DataLoader(Prefetching(daemon="cured" in sys.argv), num_workers=1))
    print(f"{len(batches)} batches in {time.monotonic() - begin:.1f} s")
