"""Graph batches: ragged edge lists are merged and padded by a collate_fn of Python loops.

TRUTH: the collate_fn is the limit: about 40 ms of Python per batch in the worker's CPU,
against 2 ms for the 32 __getitem__ calls and 6 ms of step. One worker has too little CPU.
FIX: vectorised padding (torch.nn.utils.rnn.pad_sequence, tensor scatter): 5x or more; or
num_workers=3: near 3x.
"""

import argparse
import json
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Graphs(Dataset):
    def __init__(self, n):
        rng = random.Random(4)
        self.edges = [[(rng.randrange(60), rng.randrange(60)) for _ in range(120)] for _ in range(64)]
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"edges": self.edges[i % 64], "label": i % 2, "nodes": 60}


def dense_adjacency(graphs):
    size = max(g["nodes"] for g in graphs)
    out = []
    for g in graphs:
        m = [[0.0] * size for _ in range(size)]
        for a, b in g["edges"]:
            m[a][b] += 1.0
            m[b][a] += 1.0
        for row in m:
            s = sum(row) or 1.0
            for k in range(size):
                row[k] = row[k] / s
        out.append(m)
    return torch.tensor(out), torch.tensor([g["label"] for g in graphs])


def main(extra):
    kw = dict(batch_size=32, shuffle=True, collate_fn=dense_adjacency, num_workers=1)
    kw.update(extra)
    if not kw["num_workers"]:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for adj, y in DataLoader(Graphs(3200), **kw):
        (adj @ adj).diagonal(dim1=1, dim2=2).sum(1).sub(y).mean()
        time.sleep(0.004)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", default="{}")
    main(json.loads(parser.parse_args().options))
