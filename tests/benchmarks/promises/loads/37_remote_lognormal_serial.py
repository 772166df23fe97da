"""Feature regression on objects fetched one by one from a remote store.

Each sample is one GET whose latency is lognormal (median 8 ms, mean 9.5 ms);
the accelerator step is imitated by a 25 ms sleep.

TRUTH: num_workers=0, so the 16 GETs of each batch (about 150 ms) run one after
another in the main process; hardly any CPU is used.
FIX: num_workers=6 or more hides nearly all of it (about 4.3 s -> 0.9 s of
training); prefetch_factor and in_order do not matter much.
"""
import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class BucketDataset(Dataset):
    def __init__(self, n, seed=37):
        rng = np.random.default_rng(seed)
        self.latency = rng.lognormal(np.log(0.008), 0.6, n)
        self.seeds = rng.integers(0, 2**31, n)

    def __len__(self):
        return len(self.latency)

    def _get_object(self, i):
        time.sleep(self.latency[i])
        return np.random.default_rng(self.seeds[i]).random(2048, dtype=np.float32)

    def __getitem__(self, i):
        x = self._get_object(i)
        return torch.from_numpy(x), torch.tensor(x[:8].sum())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", default="{}")
    args = ap.parse_args()
    opts = dict(batch_size=16, shuffle=True, num_workers=0)
    opts.update(json.loads(args.options))
    if opts.get("num_workers", 0) == 0:
        opts.pop("prefetch_factor", None)
        opts.pop("persistent_workers", None)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(BucketDataset(384), **opts)
    model = torch.nn.Linear(2048, 1)
    optim = torch.optim.SGD(model.parameters(), lr=1e-4)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        time.sleep(0.025)  # the device


if __name__ == "__main__":
    main()
