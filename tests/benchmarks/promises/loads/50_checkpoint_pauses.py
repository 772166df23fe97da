"""A device-bound run that also stops to write a checkpoint every 15 steps.

A step takes 38 ms on the (imitated) device; a checkpoint is a torch.save of
the model and optimizer plus 0.45 s until the shared disk has answered.

TRUTH: the loop is never short of data: two workers need about 25 ms for a
batch of which one is used every 38 ms. All the time is steps and checkpoints.
FIX: none of the options helps; num_workers=0 would add the loading time.
"""
import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Spectrograms(Dataset):
    def __init__(self, n):
        self.seeds = np.random.default_rng(50).integers(0, 2**31, n)

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, i):
        time.sleep(0.001)
        wave = np.random.default_rng(self.seeds[i]).standard_normal(8192)
        frames = wave.reshape(64, 128) * np.hanning(128)
        spec = np.abs(np.fft.rfft(frames, axis=1)).astype(np.float32)
        return torch.from_numpy(np.log1p(spec)), i % 3


def checkpoint(folder, model, optim, step):
    path = os.path.join(folder, "last.pt")
    torch.save({"model": model.state_dict(), "optim": optim.state_dict(), "step": step}, path + ".tmp")
    time.sleep(0.45)
    os.replace(path + ".tmp", path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", default="{}")
    kw = {"batch_size": 16, "shuffle": True, "num_workers": 2}
    kw.update(json.loads(ap.parse_args().options))
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.manual_seed(50)
    torch.set_num_threads(1)
    model = torch.nn.Linear(65, 3)
    optim = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        for step, (x, y) in enumerate(DataLoader(Spectrograms(960), **kw), 1):
            loss = torch.nn.functional.cross_entropy(model(x.mean(1)), y)
            optim.zero_grad()
            loss.backward()
            optim.step()
            time.sleep(0.038)
            if step % 15 == 0:
                checkpoint(folder, model, optim, step)


if __name__ == "__main__":
    main()
