"""Many short epochs; each worker loads a vocabulary in worker_init_fn, every epoch anew.

TRUTH: start-up: worker_init_fn computes about 0.3 s (a dict) in every worker and epoch,
and an epoch has only 12 quick batches (about 0.1 s of step): most of the time goes
into workers starting. persistent_workers is not set.
FIX: persistent_workers=True (start-up once): about 3x; or build the table in main before
the fork.
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset

VOCAB = {}


def load_vocabulary(worker_id):
    for k in range(400_000):
        VOCAB[f"w{k}"] = k
    VOCAB["<worker>"] = worker_id


class Words(Dataset):
    def __len__(self):
        return 12 * 16

    def __getitem__(self, i):
        if not VOCAB:
            load_vocabulary(-1)
        return torch.tensor([VOCAB[f"w{(i * 7919 + k) % 400_000}"] for k in range(32)])


def main(options):
    kw = dict(batch_size=16, shuffle=True, num_workers=2, worker_init_fn=load_vocabulary)
    kw.update(options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    loader = DataLoader(Words(), **kw)
    for epoch in range(10):
        for ids in loader:
            ids.float().std()
            time.sleep(0.008)


if __name__ == "__main__":
    torch.set_num_threads(1)
    a = argparse.ArgumentParser()
    a.add_argument("--options", default="{}", type=json.loads)
    main(a.parse_args().options)
