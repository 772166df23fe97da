"""Photo classification: JPEGs (in memory) are decoded, cropped and normalised.

TRUTH: too few workers: the single worker computes about 170 ms per batch (JPEG decode in
the dataset), the training step takes about 10 ms. CPU of the worker is the limit.
FIX: num_workers=3 or 4 (4 cores): about 3x faster.
"""

import argparse
import io
import json

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def make_jpegs(n=24):
    rng = np.random.default_rng(0)
    blobs = []
    for _ in range(n):
        im = Image.fromarray(rng.integers(0, 255, (48, 64, 3)).astype(np.uint8)).resize((640, 480))
        buf = io.BytesIO()
        im.save(buf, "JPEG", quality=90)
        blobs.append(buf.getvalue())
    return blobs


class Photos(Dataset):
    def __init__(self, blobs, n):
        self.blobs, self.n = blobs, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        im = Image.open(io.BytesIO(self.blobs[i % len(self.blobs)])).convert("RGB")
        im = im.resize((256, 256), Image.BICUBIC).crop((16, 16, 240, 240))
        a = np.asarray(im, dtype=np.float32) / 255
        return torch.from_numpy((a - 0.5).transpose(2, 0, 1).copy()), i % 5


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    opts = dict(batch_size=16, shuffle=True, num_workers=1)
    opts.update(ap.parse_args().options)
    if opts["num_workers"] == 0:
        opts.pop("prefetch_factor", None)
        opts.pop("persistent_workers", None)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Photos(make_jpegs(), 480), **opts)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 7, 8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 5),
    )
    opt = torch.optim.SGD(net.parameters(), 0.01)
    for x, y in loader:
        opt.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        opt.step()


if __name__ == "__main__":
    main()
