"""Epochs of training with a validation after each; validation loader at num_workers=0.

TRUTH: the validation loader: num_workers=0, each of its samples waits 6 ms for I/O in main
(20 batches x 10 x 6 ms = 1.2 s per validation), against 0.5 s for a training epoch, whose
loader (3 workers) is fine. 70 % of the time is the validation's loading.
FIX: num_workers=3 (or more) for the validation loader: near 2x overall. The training
loader's options gain nothing. (--options go to the training loader.)
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset, random_split


class Xray(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(0.006)
        return torch.full((1, 28, 28), i / self.n), i % 2


def run_epoch(net, loader, opt=None, pause=0.0):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(net(x), y)
        if opt:
            opt.zero_grad()
            loss.backward()
            opt.step()
        time.sleep(pause)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=10, shuffle=True, num_workers=3, persistent_workers=True)
    kw.update(p.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.set_num_threads(1)
    train, val = random_split(Xray(400), [200, 200], torch.Generator().manual_seed(0))
    train_loader = DataLoader(train, **kw)
    val_loader = DataLoader(val, batch_size=10)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 2))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(3):
        run_epoch(net, train_loader, opt, pause=0.025)
        with torch.no_grad():
            run_epoch(net, val_loader, pause=0.002)


if __name__ == "__main__":
    main()
