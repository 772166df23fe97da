"""max_steps instead of epochs: the last epoch ends by break after a few batches.

TRUTH: 2 workers compute too slowly (about 50 ms of Python per batch in __getitem__, 25 ms
with two) for a step of 8 ms: worker CPU. The early break of the last epoch (after 5 of 60
batches, its prefetched batches are thrown away) is harmless.
FIX: num_workers=4: about 1.8x; or vectorise the Python.
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Primes(Dataset):
    def __len__(self):
        return 600

    def __getitem__(self, i):
        n = 40_000 + 10 * i
        sieve = [True] * n
        for p in range(2, int(n**0.5) + 1):
            if sieve[p]:
                for q in range(p * p, n, p):
                    sieve[q] = False
        count = 0
        for flag in sieve:
            if flag:
                count += 1
        return torch.tensor([n, count], dtype=torch.float32)


def main(max_steps=125):
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    kw = dict(batch_size=10, num_workers=2, prefetch_factor=2)
    kw.update(p.parse_args().options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    loader = DataLoader(Primes(), **kw)
    step = 0
    while step < max_steps:
        for x in loader:
            (x[:, 1] / x[:, 0]).mean()
            time.sleep(0.008)
            step += 1
            if step == max_steps:
                break


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
