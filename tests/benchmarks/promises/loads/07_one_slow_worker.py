"""Three workers; the second one has its cache on a slow disk (and nobody knows).

TRUTH: worker 1 of 3 takes 8 times as long per sample (24 ms of sleep against 3 ms), and
since batches are delivered in order and dealt round robin, every third batch waits for
it: 192 ms per 3 batches. The other two workers idle most of the time.
FIX: repair that worker's disk: about 4-5x (then 8 x 3 / 3 = 8 ms per batch, the step 12
ms limits). in_order=False lets the others take over: 2-3x. More workers (6) help in that
the share of the slow one falls.
"""

import argparse
import json
import time

import numpy as np
import torch
import torch.utils.data as data


def mount_cache(worker_id):
    info = data.get_worker_info()
    info.dataset.latency = 0.024 if worker_id == 1 else 0.003


class Cached(data.Dataset):
    latency = 0.003

    def __init__(self, n):
        self.x = np.arange(n * 100, dtype=np.float32).reshape(n, 100)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(self.latency)
        return self.x[i]


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default=dict())
    kw = dict(batch_size=8, num_workers=3, worker_init_fn=mount_cache)
    kw.update(p.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    return kw


def main():
    loader = data.DataLoader(Cached(600), **parse())
    w = torch.zeros(100)
    for x in loader:
        w += x.mean(0)
        time.sleep(0.012)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
