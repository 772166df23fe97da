"""Log files as shards for an IterableDataset: one worker per shard; one shard is huge.

TRUTH: unequal shards: worker 0 has 500 records, workers 1-3 have 60 each; 5 ms of I/O
each. After the small shards have ended, worker 0 delivers alone (about 80 % of the time):
62 batches at 40 ms, while 3 workers have ended.
FIX: split the big shard evenly over the 4 workers: about 3x. More workers: nothing.
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS = {"2024-01.log": 500, "2024-02.log": 60, "2024-03.log": 60, "2024-04.log": 60}


class Logs(IterableDataset):
    def __init__(self, shards):
        self.shards = list(shards.items())

    def __iter__(self):
        info = get_worker_info()
        mine = self.shards if info is None else self.shards[info.id :: info.num_workers]
        for name, count in mine:
            for line in range(count):
                time.sleep(0.005)
                yield torch.tensor([hash(name) % 97, line])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=8, num_workers=4)
    kw.update(p.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    dl = DataLoader(Logs(SHARDS), **kw)
    for epoch in range(2):
        for b in dl:
            b.float().norm()
            time.sleep(0.006)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
