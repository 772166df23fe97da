"""The training set is augmented in Python, the validation set is cached tensors.

TRUTH: the training loader is the limit: 2 workers compute 10 ms per sample (elastic
distortion), 80 ms per batch of 8, about 40 ms with 2; the step is 8 ms. The validation
loader (num_workers=0, cached) is fine, and takes 5 % of the time.
FIX: num_workers=4 on the training loader: near 2x (3: 1.5x). Validation: leave it.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Elastic(Dataset):
    def __init__(self, n, seed):
        self.img = np.random.default_rng(seed).random((n, 96, 96)).astype(np.float32)

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        d = rng.standard_normal((2, 96, 96))
        for _ in range(42):
            d = (d + np.roll(d, 1, 1) + np.roll(d, -1, 1) + np.roll(d, 1, 2) + np.roll(d, -1, 2)) / 5
        yy, xx = np.mgrid[:96, :96]
        r = np.clip(yy + 20 * d[0], 0, 95).astype(int)
        c = np.clip(xx + 20 * d[1], 0, 95).astype(int)
        return torch.from_numpy(self.img[i][r, c])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    kw.update(p.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(Elastic(320, 0), **kw)
    val = DataLoader(TensorDataset(torch.rand(320, 96, 96)), batch_size=32)
    for _ in range(2):
        for x in train:
            x.square().mean()
            time.sleep(0.008)
        for (x,) in val:
            x.square().mean()
            time.sleep(0.01)


if __name__ == "__main__":
    main()
