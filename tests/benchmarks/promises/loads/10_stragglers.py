"""Video clips; one in about 90 has to be fetched from cold storage (0.35 s).

TRUTH: rare very slow samples: 11 of 960 sleep 0.35 s, the others 2 ms. In-order delivery:
the loop stalls at each such batch (order is fixed), though the 3 workers are mostly idle
on average (20 ms step per batch of 8; 16 ms load).
FIX: in_order=False: 1.5x or more; or a deeper prefetch_factor (6 to 12) that covers 0.35 s.
More workers with prefetch_factor 2 help some.
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, n=960):
        g = torch.Generator().manual_seed(2)
        self.cold = set(torch.randperm(n, generator=g)[:11].tolist())
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(0.35 if i in self.cold else 0.002)
        return torch.full((8, 24, 24), float(i))


def build(args):
    kw = {"batch_size": 8, "num_workers": 3, "shuffle": False}
    kw.update(args)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    return DataLoader(Clips(), **kw)


if __name__ == "__main__":
    torch.set_num_threads(1)
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--options", type=json.loads, default={})
    for clip in build(p.parse_args().options):
        clip.mean((1, 2, 3))
        time.sleep(0.02)
