"""Bucketed sentences: 24 batches of short ones, then 6 of very long ones, and so on.

TRUTH: bursts: the mean load (2 workers: 24 x 10 ms + 6 x 300 ms = 2040 ms per 30 batches
/ 2 = 1020 ms) is below the mean step (30 x 40 = 1200 ms), but the prefetch of 2 x 2
batches is too small for a burst, in which the loop waits about 110 ms per batch.
FIX: prefetch_factor=8 (or more): near step-limited, about 1.3x; num_workers=4: the same.
"""

import argparse
import json
import time

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler


class Sentences(Dataset):
    def __len__(self):
        return 90 * 10

    def __getitem__(self, i):
        long = (i // 10) % 30 >= 24
        time.sleep(0.030 if long else 0.001)
        return torch.arange(50), int(long)


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--options", default="{}")
    kw = {"num_workers": 2, "prefetch_factor": 2}
    kw.update(json.loads(p.parse_args().options))
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor")
        kw.pop("persistent_workers", None)
    return kw


def main():
    kw = options()
    ds = Sentences()
    bs = BatchSampler(SequentialSampler(ds), kw.pop("batch_size", 10), drop_last=False)
    for tokens, long in DataLoader(ds, batch_sampler=bs, **kw):
        time.sleep(0.04)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
