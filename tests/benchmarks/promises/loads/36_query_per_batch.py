"""A database: one query per batch (__getitems__) with a fixed latency of 60 ms.

TRUTH: latency per query in the workers: 60 ms + 0.05 ms per row, whatever the batch size;
2 workers give a batch of 16 each 30 ms; the step needs 4 ms. No CPU, I/O wait.
FIX: a larger batch_size (64: samples/s about 4x) or num_workers=8 (about 4x; more than
cores is fine, it is only waiting).
"""

import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Database:
    def select(self, ids):
        time.sleep(0.060 + 0.00005 * len(ids))
        return [{"id": i, "features": np.full(20, i, dtype=np.float32)} for i in ids]


class Rows(Dataset):
    db = Database()

    def __len__(self):
        return 2400

    def __getitems__(self, ids):
        return self.db.select(ids)

    def __getitem__(self, i):
        return self.db.select([i])[0]


def to_tensors(rows):
    return torch.from_numpy(np.stack([r["features"] for r in rows]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=16, num_workers=2, shuffle=True, collate_fn=to_tensors)
    kw.update(p.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.manual_seed(0)
    for x in DataLoader(Rows(), **kw):
        x.sum()
        time.sleep(0.004)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
