"""An MLP on CPU: forward, backward and optimiser of big layers.

TRUTH: the training step is the limit: matrix products in main (1 thread, about 35 ms per
batch); the loader's samples are trivial, its queue is always full.
FIX: nothing in the DataLoader; make the model smaller or use more torch threads (up to
3-4x on 4 idle cores). num_workers=0 would cost almost nothing.
"""

import argparse
import json

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, n, d):
        self.a = np.random.default_rng(5).standard_normal((n, d)).astype(np.float32)

    def __len__(self):
        return len(self.a)

    def __getitem__(self, i):
        return self.a[i], self.a[i, :10].sum()


class Net(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, 900), nn.GELU(), nn.Linear(900, 900), nn.GELU())
        self.head = nn.Linear(900, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=256, shuffle=True, num_workers=2, drop_last=True) | ap.parse_args().options
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None), kw.pop("persistent_workers", None)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = Net(300)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for x, y in DataLoader(Rows(256 * 110, 300), **kw):
        opt.zero_grad(set_to_none=True)
        nn.functional.mse_loss(net(x), y).backward()
        opt.step()


if __name__ == "__main__":
    main()
