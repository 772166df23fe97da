"""Online learning on an in-memory table, one row at a time (batch_size=1).

TRUTH: per-batch cost of the worker processes (queues, shared memory, pickling) is the
limit: a row costs some microseconds to make, and the transfer of a 1-row batch several
hundred. The data are tiny and in memory: the workers only cost.
FIX: num_workers=0: 2x to 5x faster; or a larger batch_size.
"""

import argparse
import json

import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    kw = {"batch_size": 1, "num_workers": 2, "shuffle": True} | ap.parse_args().options
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    table = TensorDataset(torch.randn(5000, 12), torch.randint(0, 2, (5000,)).float())
    w = torch.zeros(12)
    for x, y in DataLoader(table, **kw):
        p = torch.sigmoid(x @ w)
        w += 0.01 * ((y - p)[:, None] * x).mean(0)


if __name__ == "__main__":
    main()
