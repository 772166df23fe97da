"""Objects from an object store with 25 ms latency per GET (simulated by sleep).

TRUTH: I/O wait in the workers: 4 workers x 25 ms per sample; 20 samples per batch = 500
ms per batch / 4 workers = 125 ms per batch. No CPU used. Step about 15 ms.
FIX: more workers, beyond the number of cores: num_workers=16 gives about 4x; or
concurrent GETs within a worker (__getitems__ with threads).
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Bucket:
    def get(self, key):
        time.sleep(0.025)
        return (str(key).encode() * 2000)[:2000]


class Objects(Dataset):
    def __init__(self, keys):
        self.keys, self.bucket = keys, Bucket()

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        blob = bytearray(self.bucket.get(self.keys[i]))
        return torch.frombuffer(blob, dtype=torch.uint8).float()


def step(x):
    big = torch.zeros(1000, 2000)  # activations
    big[: len(x)] += x
    time.sleep(0.012)
    return big.sum()


def main(options):
    torch.set_num_threads(1)
    kw = dict(batch_size=20, shuffle=True, num_workers=4, prefetch_factor=2)
    kw.update(options)
    if kw["num_workers"] == 0:
        kw["prefetch_factor"] = None
        kw.pop("persistent_workers", None)
    for x in DataLoader(Objects(list(range(800))), **kw):
        step(x)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", default="{}")
    main(json.loads(ap.parse_args().options))
