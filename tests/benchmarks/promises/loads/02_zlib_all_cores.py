"""Compressed signal archive: every sample is a zlib block that is inflated and deflated.

TRUTH: 4 workers compute all the time on 4 cores (zlib in the dataset): the machine's
cores are the limit; the step (5 ms) is nothing. More workers do not help.
FIX: make the sample cheaper (store decompressed, level 1, cache): proportional gain. No
DataLoader option gains more than a few percent; fewer workers lose.
"""

import json
import sys
import time
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

options = {"batch_size": 8, "num_workers": 4, "prefetch_factor": 2}
if "--options" in sys.argv:
    options.update(json.loads(sys.argv[sys.argv.index("--options") + 1]))
if not options["num_workers"]:
    for key in ("prefetch_factor", "persistent_workers"):
        options.pop(key, None)


class Archive(Dataset):
    def __init__(self):
        rng = np.random.default_rng(7)
        self.blocks = [zlib.compress(rng.integers(0, 16, 300_000).astype(np.uint8).tobytes(), 1) for _ in range(16)]

    def __len__(self):
        return 800

    def __getitem__(self, i):
        raw = zlib.decompress(self.blocks[i % 16])
        again = zlib.compress(raw, 6)  # "entropy feature"
        x = np.frombuffer(raw, dtype=np.uint8)[:4096].astype(np.float32)
        return x, np.float32(len(again))


def main():
    torch.set_num_threads(1)
    for x, size in DataLoader(Archive(), **options):
        x.mean(1).sub(size).abs().mean()
        time.sleep(0.005)


if __name__ == "__main__":
    main()
