"""Large numpy batches (about 38 MB) of crops cut from volumes in memory.

collate_fn returns numpy arrays, as people do who feed another framework, so a
worker has to pickle each batch through a pipe instead of shared memory.

TRUTH: cutting and stacking the crops takes 20 to 30 ms; sending 38 MB through
the pipe and unpickling it takes longer, part of it in the main process.
FIX: num_workers=0 (saves about 30 to 50 %); more workers or more prefetching
do not help, the main process has to read every byte of the pipe itself.
"""
import argparse
import json

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIZE = 68


class Crops(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(45)
        self.volume = rng.random((160, 160, 160), dtype=np.float32)
        self.corner = rng.integers(0, 160 - SIZE, (n, 3))

    def __len__(self):
        return len(self.corner)

    def __getitem__(self, i):
        z, y, x = self.corner[i]
        return self.volume[z:z + SIZE, y:y + SIZE, x:x + SIZE]


def numpy_collate(items):
    return {"image": np.stack(items), "scale": np.ones(len(items), np.float32)}


def train_step(batch, w):
    img = torch.from_numpy(batch["image"])
    pooled = img[:, ::8, ::8, ::8].reshape(len(img), -1)
    out = pooled[:, :w.shape[0]] @ w
    return float(out.square().mean())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", default="{}")
    cfg = dict(batch_size=30, num_workers=1, collate_fn=numpy_collate)
    cfg.update(json.loads(ap.parse_args().options))
    if cfg["num_workers"] == 0:
        for k in ("prefetch_factor", "persistent_workers"):
            cfg.pop(k, None)
    torch.manual_seed(45)
    torch.set_num_threads(1)
    w = torch.randn(512, 64)
    total = 0.0
    for batch in DataLoader(Crops(45 * 30), **cfg):
        total += train_step(batch, w)


if __name__ == "__main__":
    main()
