"""CPU-only training on lzma-packed sensor traces.

The model (one thread) needs about 50 ms of CPU a step; unpacking a batch of
four traces needs about as much in the single worker.

TRUTH: the main process and the worker keep both cores busy all the time.
FIX: nothing helps on two cores: more workers share the same cores, and
num_workers=0 would make it nearly twice as slow.
"""
import argparse
import json
import lzma

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Traces(Dataset):
    def __init__(self, n, kinds=6):
        rng = np.random.default_rng(43)
        self.n = n
        self.packed = [
            lzma.compress(rng.integers(0, 40, 190_000, dtype=np.uint8).tobytes(), preset=0)
            for _ in range(kinds)
        ]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        raw = lzma.decompress(self.packed[i % len(self.packed)])
        trace = np.frombuffer(raw, dtype=np.uint8)[:180_000].reshape(-1, 100)
        return torch.from_numpy(trace.mean(0, dtype=np.float32))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.w = torch.randn(768, 768, generator=g) / 768**0.5
        self.head = torch.randn(100, 768, generator=g)

    def forward(self, x):
        h = x @ self.head
        m = self.w
        for _ in range(2):
            m = torch.tanh(m @ self.w)
        return h @ m


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", default="{}")
    kw = dict(batch_size=4, num_workers=1)
    kw.update(json.loads(ap.parse_args().options))
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.set_num_threads(1)
    model = Model()
    with torch.no_grad():
        for x in DataLoader(Traces(220), **kw):
            model(x).sum().item()
