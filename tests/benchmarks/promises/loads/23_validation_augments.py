"""Test-time augmentation makes validation samples heavy; training samples are light.

TRUTH: the validation loader is the limit (1 worker, about 38 ms of CPU per sample: 10
rotated crops), the training loader is fine (its step of 20 ms hides all). About 70 %
of the time is spent waiting for validation batches.
FIX: num_workers=4 for the validation loader (3x for that part, about 2x overall), or
less augmentation, or validating less often.
"""

import argparse
import json
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Leaves(Dataset):
    def __init__(self, n, tta):
        self.im = Image.fromarray(np.random.default_rng(1).integers(0, 255, (160, 160, 3)).astype(np.uint8))
        self.n, self.tta = n, tta

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        views = []
        for k in range(10 if self.tta else 1):
            im = self.im.rotate(7 * k + i, resample=Image.BICUBIC) if self.tta else self.im
            views.append(np.asarray(im.resize((64, 64)), dtype=np.float32))
        return np.stack(views)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = {"batch_size": 8, "num_workers": 2, "shuffle": True} | p.parse_args().options
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.set_num_threads(1)
    train = DataLoader(Leaves(240, False), **kw)
    val = DataLoader(Leaves(48, True), batch_size=4, num_workers=1)
    for epoch in range(2):
        for x in train:
            time.sleep(0.02)
        for x in val:
            x.mean((2, 3))


if __name__ == "__main__":
    main()
