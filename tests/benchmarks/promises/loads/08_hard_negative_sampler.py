"""Metric learning with a hard-negative batch sampler that re-sorts everything each time.

TRUTH: the sampler is the limit: HardNegatives.__iter__ runs in the main process, inside
next(), about 50 ms of numpy sorting per batch; workers (1 ms per batch) and step (about 8
ms) wait for it.
FIX: sort once per epoch or use argpartition on a subset: about 4-5x. num_workers or
prefetch change nothing.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Embeddings(Dataset):
    def __init__(self, n):
        self.e = np.random.default_rng(0).standard_normal((n, 16)).astype(np.float32)

    def __len__(self):
        return len(self.e)

    def __getitem__(self, i):
        return self.e[i], i


class HardNegatives:
    """Yields lists of indices: an anchor and those nearest to it, with some noise."""

    def __init__(self, ds, batch_size, batches):
        self.ds, self.batch_size, self.batches = ds, batch_size, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        rng = np.random.default_rng(1)
        for _ in range(self.batches):
            anchor = int(rng.integers(len(self.ds)))
            score = self.ds.e @ self.ds.e[anchor]
            score += rng.standard_normal(len(score), dtype=np.float32)
            order = np.argsort(score, kind="heapsort")
            yield order[-self.batch_size :].tolist()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    o = dict(num_workers=2, batch_size=32) | p.parse_args().options
    if o["num_workers"] == 0:
        o.pop("prefetch_factor", None), o.pop("persistent_workers", None)
    ds = Embeddings(200_000)
    batch_sampler = HardNegatives(ds, o.pop("batch_size"), 80)
    torch.set_num_threads(1)
    for x, i in DataLoader(ds, batch_sampler=batch_sampler, **o):
        torch.cdist(x, x).topk(3).values.sum()
        time.sleep(0.008)


if __name__ == "__main__":
    main()
