"""Fine-tuning on a small text set: six short epochs, the tokenizer made lazily.

The tokenizer (a download check of 0.35 s and a merge table built in Python) is
made at the first __getitem__ of each process, as with objects that do not pickle.

TRUTH: workers are thrown away after each epoch, so every epoch begins with
about 0.5 s in which the loop waits for the set-up again; inside an epoch the
two workers keep up with the 14 ms step.
FIX: persistent_workers=True pays the set-up once (saves about half);
num_workers=0 also pays it once but loses the overlap (saves a little less).
"""
import argparse
import json
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset

WORDS = ["alpha", "beta", "gamma", "delta", "train", "loader", "epoch", "batch"]


class Tokenizer:
    def __init__(self):
        time.sleep(0.35)  # etag check of the hub cache
        self.table = {}
        for i in range(150_000):
            self.table["%x" % (i * 2654435761 % 2**32)] = i

    def encode(self, text):
        return [self.table.get("%x" % (hash_of(w) % 2**32), 1) for w in text.split()]


def hash_of(word):
    h = 5381
    for ch in word:
        h = h * 33 + ord(ch)
    return h


class Sentences(Dataset):
    def __init__(self, n=192):
        rng = random.Random(39)
        self.texts = [" ".join(rng.choices(WORDS, k=64)) for _ in range(n)]
        self.tok = None

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        if self.tok is None:
            self.tok = Tokenizer()
        return torch.tensor(self.tok.encode(self.texts[i]))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--options", default="{}")
    conf = {"batch_size": 8, "num_workers": 2, "shuffle": True, **json.loads(p.parse_args().options)}
    if conf["num_workers"] == 0:
        conf.pop("prefetch_factor", None), conf.pop("persistent_workers", None)
    torch.manual_seed(39)
    loader = DataLoader(Sentences(), **conf)
    for epoch in range(6):
        for ids in loader:
            time.sleep(0.014)
