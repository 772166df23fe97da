"""A pipeline somebody has tuned: 3 workers, a computing step, 4 cores.

TRUTH: balanced: the step computes about 22 ms per batch in main (1 torch thread), the 3
workers compute about 60 ms per batch (20 ms per batch for three): all 4 cores are busy and
loading hides behind the step. The step limits, by a small margin.
FIX: nothing to gain by DataLoader options (within 10 %); both sides would have to be made
cheaper.
"""

import argparse
import json

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Smooth(Dataset):
    def __len__(self):
        return 8 * 160

    def __getitem__(self, i):
        x = np.random.default_rng(i).standard_normal((128, 256))
        for _ in range(15):
            f = np.fft.rfft(x)
            f[:, 40:] = 0
            x = np.fft.irfft(f, n=256) + 1e-3
        return torch.from_numpy(x.astype(np.float32))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=8, shuffle=True, num_workers=3, prefetch_factor=3)
    kw.update(ap.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    w = torch.randn(256, 256) / 16
    for x in DataLoader(Smooth(), **kw):
        h = x.reshape(-1, 256)
        for _ in range(12):
            h = torch.tanh(h @ w)
        h.mean().item()


if __name__ == "__main__":
    main()
