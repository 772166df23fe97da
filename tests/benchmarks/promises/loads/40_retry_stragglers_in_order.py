"""Video clips from an HTTP mirror: most reads take 5 ms, one in ninety times
out after 0.65 s and is retried.

TRUTH: four workers have enough throughput for the 30 ms step, but a batch that
holds a timed-out read keeps back the finished ones of the other workers, since
batches must come in order; the loop stands still for about 0.4 s each time.
FIX: in_order=False (saves about a third); prefetch_factor=8 or more helps
nearly as much, since it buffers over the time-outs.
"""
import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Mirror(Dataset):
    CLIP = (3, 4, 32, 32)

    def __init__(self, n):
        rng = np.random.default_rng(4040)
        self.cost = rng.uniform(0.003, 0.007, n)
        bad = 40 + 90 * np.arange((n - 80) // 90 + 1) + rng.integers(0, 25, (n - 80) // 90 + 1)
        self.slow = set(bad.tolist())

    def __len__(self):
        return len(self.cost)

    def read(self, i):
        if i in self.slow:
            time.sleep(0.65)  # first try: no answer
        time.sleep(self.cost[i])
        return np.full(self.CLIP, i % 251, dtype=np.uint8)

    def __getitem__(self, i):
        clip = torch.from_numpy(self.read(i)).float().div_(255)
        return clip, i % 10


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", default="{}")
    return json.loads(ap.parse_args().options)


def main():
    kw = dict(batch_size=8, num_workers=4, prefetch_factor=2)
    kw.update(parse())
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.set_num_threads(1)
    seen = 0
    for clips, labels in DataLoader(Mirror(640), **kw):
        seen += int(labels.sum())
        clips.mean()
        time.sleep(0.03)


if __name__ == "__main__":
    main()
