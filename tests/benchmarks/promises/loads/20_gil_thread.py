"""A "live statistics" thread in main that computes in pure Python all the time.

TRUTH: the GIL of the main process: the background thread `stats` never lets go of it (5
ms switch interval), so every small torch call, queue operation and the unpickling of a
batch in main take some ms more; workers are idle, their queue is full.
FIX: stop the thread or move it to a process: 3x or more. DataLoader options do nothing.
"""

import argparse
import json
import threading

import torch
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __len__(self):
        return 16 * 140

    def __getitem__(self, i):
        return torch.full((3, 32, 32), i / 1000.0), i % 2


def stats(stop):
    x, n = 0.5, 0
    while not stop.is_set():
        for _ in range(1000):
            x = 3.7 * x * (1 - x)
        n += 1


def train(loader, net, opt):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=16, num_workers=2)
    kw.update(ap.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    stop = threading.Event()
    t = threading.Thread(target=stats, args=(stop,), name="stats", daemon=True)
    t.start()
    train(DataLoader(Tiles(), **kw), net, opt)
    stop.set()
    t.join()


if __name__ == "__main__":
    main()
