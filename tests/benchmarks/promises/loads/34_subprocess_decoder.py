"""Each sample is decoded by an external program (like ffmpeg): here, gzip.

TRUTH: too few workers: each of the 2 waits for its own child process (`gzip -9`, about 20
ms of CPU in the child per sample), so 2 of 4 cores are used; the worker itself uses hardly
any CPU, the CPU is burned in the grandchildren. Step 10 ms per batch of 4.
FIX: num_workers=4: about 1.8x (up to the number of cores, then no more); or a library
instead of a program.
"""

import argparse
import json
import subprocess
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Decoded(Dataset):
    def __init__(self, n):
        self.raw = np.random.default_rng(0).integers(0, 24, 300_000).astype(np.uint8).tobytes()
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        p = subprocess.run(["gzip", "-9", "-c"], input=self.raw[i:], stdout=subprocess.PIPE, check=True)
        return torch.frombuffer(bytearray(p.stdout[20:1020]), dtype=torch.uint8).float()


if __name__ == "__main__":
    torch.set_num_threads(1)
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=4, num_workers=2)
    kw.update(ap.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    for x in DataLoader(Decoded(480), **kw):
        x.std(1)
        time.sleep(0.01)
