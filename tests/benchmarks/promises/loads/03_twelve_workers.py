"""A pure-Python tokenizer with num_workers=12, because "more is better".

TRUTH: 12 computing workers on 4 cores: CPU of the cores is the limit (Python loop in the
dataset); 8 of the workers only take memory, start-up and switches.
FIX: num_workers=4 (or 3): the same throughput (within 10 %), less memory; real gain only
from a cheaper tokenizer.
"""

import argparse
import json

import torch
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        h, out = i + 1, []
        for k in range(64 * 600):
            h = (h * 31 + 7) % 1000003
            if k % 600 == 0:
                out.append(h % 5000)
        return torch.tensor(out)


def loader_from(args):
    kw = {
        "batch_size": 12,
        "shuffle": True,
        "num_workers": 12,
        "prefetch_factor": 2,
        "persistent_workers": True,
    } | json.loads(args.options)
    if kw["num_workers"] == 0:
        del kw["prefetch_factor"], kw["persistent_workers"]
    return DataLoader(Tokens(), **kw)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", default="{}")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    emb = torch.nn.EmbeddingBag(5000, 32)
    dl = loader_from(parser.parse_args())
    for epoch in range(2):
        for ids in dl:
            emb(ids).pow(2).mean().backward()
