"""A copied worker_init_fn "against context switches" sets the CPU affinity.

TRUTH: all 4 workers are pinned to one and the same core by os.sched_setaffinity (in
worker_init_fn), so they share one core: about 42 ms of CPU per batch, one at a time,
although the machine has 4 cores. Step 5 ms.
FIX: remove the pinning (or pin worker k to core k): 3-4x. More workers: nothing.
"""

import argparse
import json
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def pin(worker_id):
    first = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {first})


class Histograms(Dataset):
    def __len__(self):
        return 8 * 100

    def __getitem__(self, i):
        x = np.random.default_rng(i).integers(0, 256, (3, 150_000))
        return torch.from_numpy(np.stack([np.sort(c)[::1000] for c in x]).astype(np.float32))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=8, num_workers=4, worker_init_fn=pin)
    kw.update(p.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    for h in DataLoader(Histograms(), **kw):
        h.mean()
        time.sleep(0.005)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
