"""HDF5-like store: one handle guarded by one cross-process lock.

TRUTH: the 4 workers wait for one mp.Lock (in Store.read): reads are serialised, 5 ms of
sleep each (so 60 ms per batch of 12, whatever the number of workers). No CPU limit.
FIX: no lock / own handle per worker: about 4x (then limited by the 15 ms of waiting or
the 10 ms step). More workers: nothing.
"""

import argparse
import json
import multiprocessing
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Store:
    def __init__(self, shape):
        self._lock = multiprocessing.Lock()
        self._array = np.random.default_rng(3).random(shape, dtype=np.float32)

    def read(self, i):
        with self._lock:
            time.sleep(0.005)
            return self._array[i].copy()


class Scans(Dataset):
    def __init__(self, store, n):
        self.store, self.n = store, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = self.store.read(i)
        return torch.from_numpy(x - x.mean())


def cli():
    p = argparse.ArgumentParser()
    p.add_argument("--options", default="{}")
    o = json.loads(p.parse_args().options)
    kw = dict(dict(batch_size=12, num_workers=4, shuffle=True, drop_last=True), **o)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", 0), kw.pop("persistent_workers", 0)
    return kw


def main():
    torch.manual_seed(0)
    kw = cli()
    loader = DataLoader(Scans(Store((960, 64, 64)), 960), **kw)
    for batch in loader:
        batch.var()
        time.sleep(0.010)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
