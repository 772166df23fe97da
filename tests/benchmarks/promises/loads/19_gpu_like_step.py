"""The step sleeps as when a GPU works and main waits for the result.

TRUTH: the training step is the limit: 45 ms per batch, main sleeps; the loader (2 workers,
about 12 ms of CPU per batch) keeps its queue full. Nothing to gain in the loader.
FIX: none in the DataLoader (fewer workers do as well: num_workers=1); a faster "GPU".
"""

import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __len__(self):
        return 90 * 8

    def __getitem__(self, i):
        x = np.random.default_rng(i).standard_normal((64, 512))
        return torch.from_numpy(np.abs(np.fft.rfft(x)).astype(np.float32))


class FakeGPU:
    def run(self, x):
        time.sleep(0.045)
        return x.shape[0]


if __name__ == "__main__":
    torch.set_num_threads(1)
    cli = argparse.ArgumentParser()
    cli.add_argument("--options", type=json.loads, default={})
    kw = {"batch_size": 8, "num_workers": 2} | cli.parse_args().options
    if not kw["num_workers"]:
        [kw.pop(k, None) for k in ("prefetch_factor", "persistent_workers")]
    gpu, seen = FakeGPU(), 0
    for x in DataLoader(Spectra(), **kw):
        seen += gpu.run(x)
    assert seen == 720
