"""A web API with a quota: 150 requests per second for all workers together.

TRUTH: a global rate limit (token bucket in shared memory): a worker that comes too early
sleeps until its slot; 5 workers share 150 samples/s, so 16 samples per batch take 107 ms.
No CPU, no lock is held while they sleep. More workers do not help.
FIX: raise the quota, cache the answers, or fewer requests per sample; 1 or 2 workers would
do as well.
"""

import argparse
import json
import multiprocessing as mp
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Quota:
    def __init__(self, per_second):
        self.gap = 1.0 / per_second
        self.next_slot = mp.Value("d", 0.0)

    def acquire(self):
        with self.next_slot.get_lock():
            now = time.monotonic()
            slot = max(now, self.next_slot.value)
            self.next_slot.value = slot + self.gap
        if slot > now:
            time.sleep(slot - now)


class WebImages(Dataset):
    def __init__(self, n, quota):
        self.n, self.quota = n, quota

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.quota.acquire()
        return {"id": i, "image": torch.zeros(3, 24, 24) + i}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    kw = {"batch_size": 16, "num_workers": 5, "shuffle": True} | ap.parse_args().options
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.manual_seed(0)
    for b in DataLoader(WebImages(640, Quota(150)), **kw):
        b["image"].mean()
        time.sleep(0.012)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
