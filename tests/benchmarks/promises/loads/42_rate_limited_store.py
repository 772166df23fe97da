"""Training from a store whose link serves one request at a time.

All workers share one connection slot (a multiprocessing lock), as behind a
per-client rate limit; a request holds it for 3 ms.

TRUTH: the link is the limit: a batch of 9 needs at least 27 ms of it whatever
the number of workers, and the 6 ms step is already hidden behind that.
FIX: none of the options helps: more workers only wait for the lock,
prefetching cannot make up for a steady shortage, num_workers=0 is slower.
"""
import argparse
import json
import multiprocessing
import time

import torch
from torch.utils.data import DataLoader, Dataset


class LimitedStore(Dataset):
    def __init__(self, length, slot):
        self.length = length
        self.slot = slot

    def __len__(self):
        return self.length

    def fetch(self, key):
        with self.slot:
            time.sleep(0.003)
        return key

    def __getitem__(self, i):
        key = self.fetch(i)
        gen = torch.Generator().manual_seed(key)
        return torch.rand(512, generator=gen), key % 4


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--options", default="{}", help="JSON")
    given = json.loads(ap.parse_args().options)
    settings = dict(batch_size=9, shuffle=True, num_workers=3, drop_last=True)
    settings.update(given)
    if settings["num_workers"] == 0:
        settings.pop("prefetch_factor", None)
        settings.pop("persistent_workers", None)

    torch.manual_seed(42)
    torch.set_num_threads(1)
    data = LimitedStore(990, multiprocessing.Lock())
    head = torch.nn.Linear(512, 4)
    sgd = torch.optim.SGD(head.parameters(), lr=0.01)
    for x, y in DataLoader(data, **settings):
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(head(x), y).backward()
        sgd.step()
        time.sleep(0.005)


if __name__ == "__main__":
    main()
