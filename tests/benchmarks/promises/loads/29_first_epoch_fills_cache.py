"""A dataset that caches into a shared tensor: the first epoch reads, the others do not.

TRUTH: the first epoch only is slow: 20 ms of I/O wait per sample (160 ms per batch of 8, 2
workers: 80 ms); epochs 2-6 come from the shared cache, and are limited by their step (12
ms). The steady state has nothing to gain in the loader.
FIX: for the first epoch more workers (8: 4x for that epoch) or filling the cache ahead;
over a long training: nothing.
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset


class SharedCache(Dataset):
    def __init__(self, n, dim):
        self.have = torch.zeros(n, dtype=torch.uint8).share_memory_()
        self.data = torch.zeros(n, dim).share_memory_()

    def __len__(self):
        return len(self.have)

    def _download(self, i):
        time.sleep(0.020)
        return torch.arange(self.data.shape[1]) * float(i)

    def __getitem__(self, i):
        if not self.have[i]:
            self.data[i] = self._download(i)
            self.have[i] = 1
        return self.data[i].clone()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    kw |= ap.parse_args().options
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.manual_seed(3)
    torch.set_num_threads(1)
    loader = DataLoader(SharedCache(256, 128), **kw)
    w = torch.zeros(128)
    for epoch in range(6):
        for x in loader:
            w += 1e-6 * x.mean(0)
            time.sleep(0.012)


if __name__ == "__main__":
    main()
