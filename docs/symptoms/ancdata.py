"""RuntimeError: received 0 items of ancdata

"Too many open files" again, one step later: the descriptor of a tensor's shared memory travels through a socket, and
the system drops it if the receiver has no descriptor left. torch's loader raises "Too many open files" in its place; a
queue of your own that carries tensors (here from a process that makes a validation set) shows it as it is. What used up
the descriptors may be elsewhere: here the program keeps the loader's batches, and the last two descriptors go to the
socket. The cures are those of open_files.py.
"""

import os
import resource
import sys
from typing import Any

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset


def make_validation_set(queue: Any, wanted: Any, done: Any) -> None:
    wanted.wait()
    queue.put(torch.zeros(100))
    done.wait()


def leave_two_descriptors() -> None:
    """What a longer run would do with more batches."""
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        os.close(taken.pop())
        os.close(taken.pop())


if __name__ == "__main__":
    cured = "cured" in sys.argv
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    queue, wanted, done = mp.Queue(), mp.Event(), mp.Event()
    mp.Process(target=make_validation_set, args=(queue, wanted, done), daemon=True).start()
    loader = DataLoader(TensorDataset(torch.arange(400)), batch_size=4, num_workers=1)
    kept = [batch.clone() if cured else batch for (batch,) in loader]
    if not cured:
        leave_two_descriptors()
    wanted.set()
    print(f"{len(kept)} batches kept, {len(queue.get())} samples to validate with")
    done.set()
