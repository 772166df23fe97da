"""Tabular/sensor data: a sample is a dict of 200 small tensors, all in memory.

TRUTH: moving and collating 200 small tensors per batch: each goes through shared memory
(a file descriptor each) between worker and main; the data themselves are ready. The cost
in main (rebuilding 200 tensors) and in the workers (200 stacks, 200 shm segments) limits.
FIX: one (200, k) tensor per sample (10x), or num_workers=0 (about 1.5-3x).
"""

import argparse
import json

import torch
from torch.utils.data import DataLoader, Dataset


class Sensors(Dataset):
    def __init__(self, n=256, channels=200):
        g = torch.Generator().manual_seed(0)
        self.rows = [{f"ch{c:03d}": torch.randn(4, generator=g) for c in range(channels)} for _ in range(n)]

    def __len__(self):
        return 8 * 90

    def __getitem__(self, i):
        return self.rows[i % len(self.rows)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = {"batch_size": 8, "num_workers": 2, "prefetch_factor": 2, **p.parse_args().options}
    if kw["num_workers"] == 0:
        for k in ("prefetch_factor", "persistent_workers"):
            kw.pop(k, None)
    torch.set_num_threads(1)
    acc = 0.0
    for batch in DataLoader(Sensors(), **kw):
        acc += batch["ch000"].sum().item() + batch["ch199"].sum().item()


if __name__ == "__main__":
    main()
