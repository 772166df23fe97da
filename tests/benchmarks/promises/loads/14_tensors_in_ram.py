"""MNIST-sized tensors in RAM, read one by one and re-stacked, 4 workers "for speed".

TRUTH: per-sample Python (tensor indexing, tuple, stack of 512 little tensors: about 5 us
each step) and sending: the data are in RAM already; the step takes 1 ms or so. Workers'
CPU, start-up per epoch and transfer limit; nothing is really being loaded.
FIX: index a whole batch at once (a __getitems__ or a hand-made loop over randperm):
10x or more, with num_workers=0. Changing only num_workers gains little.
"""

import json
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def get_options(argv):
    base = dict(batch_size=512, shuffle=True, num_workers=4)
    for k, a in enumerate(argv):
        if a == "--options":
            base.update(json.loads(argv[k + 1]))
        elif a.startswith("--options="):
            base.update(json.loads(a.split("=", 1)[1]))
    if base["num_workers"] == 0:
        base.pop("prefetch_factor", None)
        base.pop("persistent_workers", None)
    return base


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.rand(60_000, 196)
    y = torch.randint(0, 10, (60_000,))
    dl = DataLoader(TensorDataset(x, y), **get_options(sys.argv[1:]))
    net = torch.nn.Linear(196, 10)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(8):
        for xb, yb in dl:
            opt.zero_grad()
            torch.nn.functional.cross_entropy(net(xb), yb).backward()
            opt.step()


if __name__ == "__main__":
    main()
