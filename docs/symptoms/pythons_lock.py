"""The loader is slow, and so is everything else that main does

A thread of main computes in Python, for example metrics of the last batches. One thread at a time has Python's lock,
and gives it up only every five milliseconds; main, which lets go of it at each step of getting a batch, then waits that
long to have it again. The cure is a process of its own for that thread's work.
"""

import multiprocessing
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, TensorDataset


def metrics() -> None:
    while True:
        sum(range(10_000))


if __name__ == "__main__":
    beside = multiprocessing.Process if "cured" in sys.argv else threading.Thread
    beside(target=metrics, daemon=True).start()
    begin = time.monotonic()
    batches = sum(1 for _ in DataLoader(TensorDataset(torch.arange(640.0)), batch_size=4, num_workers=2))
    print(f"{batches} batches in {time.monotonic() - begin:.2f} s")
