"""DataLoader worker (pid 123) is killed by signal: Killed. / DataLoader worker (pid(s) 123) exited unexpectedly

Something outside Python ended a worker: usually the kernel, which kills the largest process when memory runs out, or a
crash in a library's native code. Here sample 5 plays the one that causes it. The cure is to find that sample and skip
it, or load it in pieces; minidl's error names the task and its keys.
"""

import os
import signal
import sys

from torch.utils.data import DataLoader, Dataset


class Videos(Dataset):
    def __init__(self, skip: set[int]) -> None:
        self.keys = [key for key in range(40) if key not in skip]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> int:
        if self.keys[index] == 5:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
        return self.keys[index]


if __name__ == "__main__":
    cured = "cured" in sys.argv
    data = Videos(skip={5} if cured else set())
    batches = list(DataLoader(data, batch_size=4, num_workers=2, collate_fn=list))
    print(f"{len(batches)} batches")
