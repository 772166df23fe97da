"""Annotations as a big list of dicts, start method "spawn", and short epochs.

TRUTH: start-up: with spawn every epoch starts an interpreter which imports torch (1.5-3 s
of CPU) and then unpickles a list of 120 000 dicts; an epoch itself has 20 batches of 5 ms.
Most of the wait is in iter(loader): main blocks writing the big pickle into the pipe until
the child has finished its imports; then in the first next().
FIX: persistent_workers=True: start-up once instead of twice (near 2x here, more over more
epochs); or fork / smaller annotations (numpy arrays).
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Annotated(Dataset):
    def __init__(self, n):
        self.ann = [
            {"id": i, "box": (i % 640, i % 480, 32 + i % 7, 48), "file": f"img/{i:08d}.png", "crowd": i % 3 == 0}
            for i in range(n)
        ]

    def __len__(self):
        return 320

    def __getitem__(self, i):
        return torch.tensor(self.ann[i * 300]["box"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = {"batch_size": 16, "num_workers": 1, "multiprocessing_context": "spawn"}
    kw.update(p.parse_args().options)
    if kw["num_workers"] == 0:
        for k in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
            kw.pop(k, None)
    torch.set_num_threads(1)
    dl = DataLoader(Annotated(120_000), **kw)
    for epoch in range(2):
        for boxes in dl:
            boxes.float().mean()
            time.sleep(0.005)


if __name__ == "__main__":
    main()
