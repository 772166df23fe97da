"""Semi-supervised: zip(labelled, unlabelled); every step takes a batch of both.

TRUTH: the unlabelled loader is the limit: strong augmentation in Python, about 180 ms of
CPU per batch with 1 worker; the labelled loader is quick (its queue is full and waits).
FIX: num_workers=3 for the unlabelled loader: 2.5-3x. The labelled one: leave it.
(--options go to the unlabelled loader, the main one.)
"""

import argparse
import json
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Labelled(Dataset):
    def __len__(self):
        return 8 * 60

    def __getitem__(self, i):
        return torch.full((64,), float(i)), i % 4


class Unlabelled(Dataset):
    def __len__(self):
        return 16 * 28

    def strong(self, values, rng):
        for _ in range(24):
            k = rng.randrange(len(values))
            values = [0.9 * v + 0.1 * w for v, w in zip(values, values[k:] + values[:k])]
        return values

    def __getitem__(self, i):
        rng = random.Random(i)
        v = [rng.random() for _ in range(4000)]
        return torch.tensor(self.strong(v, rng)[::62][:64])


def build():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = {"batch_size": 16, "num_workers": 1} | p.parse_args().options
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    return (DataLoader(Labelled(), batch_size=8, shuffle=True, num_workers=1), DataLoader(Unlabelled(), **kw))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = torch.nn.Linear(64, 4)
    labelled, unlabelled = build()
    for (x, y), u in zip(labelled, unlabelled):
        loss = torch.nn.functional.cross_entropy(net(x), y) + net(u).softmax(1).std()
        loss.backward()
        time.sleep(0.01)
