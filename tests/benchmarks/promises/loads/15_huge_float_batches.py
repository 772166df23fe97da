"""Volumes as float32: each batch is about 200 MB and goes through shared memory.

TRUTH: moving the data: converting uint8 to float32 and stacking into fresh shared memory
(page faults, memory bandwidth) in the workers, 200 MB per batch; a training step of about
5 ms which touches little. Not the computing of samples.
FIX: send uint8 and convert in main (or on the GPU): 4x less moved, 2-4x faster; more
workers help little (memory bandwidth, page faults).
"""

import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self):
        rng = np.random.default_rng(0)
        self.base = rng.integers(0, 255, (4, 3, 256, 1024), dtype=np.uint8)

    def __len__(self):
        return 64 * 26

    def __getitem__(self, i):
        return torch.from_numpy(self.base[i % 4].astype(np.float32))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=64, num_workers=2, prefetch_factor=1)
    kw.update(ap.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.set_num_threads(1)
    for v in DataLoader(Volumes(), **kw):
        v[:, 0, 0, :8].mean()
        time.sleep(0.005)
