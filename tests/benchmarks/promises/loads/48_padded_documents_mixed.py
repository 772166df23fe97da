"""Language-model documents: key-value reads, zlib unpacking, padding in collate.

A read takes 2 to 10 ms (lognormal), one in 250 is a time-out of 0.2 s; then
the document is unpacked and turned into ids (0.3 to 1 ms of CPU). The step
takes longer for longer padded batches (8 to 14 ms).

TRUTH: two workers need about 110 ms for a batch of 24, mostly waiting, so the
loop gets one every 55 ms or so for a step of 12 ms.
FIX: num_workers=6 to 8 (saves about 60 %); prefetch_factor alone does not
help, as the workers are behind all the time.
"""
import argparse
import json
import time
import zlib

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Documents(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(48)
        self.length = rng.integers(80, 1200, n)
        self.wait = rng.lognormal(np.log(0.0035), 0.45, n)
        self.wait[rng.permutation(n)[: n // 250]] = 0.2
        self.store = [zlib.compress(rng.integers(0, 30_000, 30_000, dtype=np.int32).tobytes(), 1)
                      for _ in range(12)]

    def __len__(self):
        return len(self.length)

    def __getitem__(self, i):
        time.sleep(self.wait[i])
        ids = np.frombuffer(zlib.decompress(self.store[i % 12]), dtype=np.int32)
        ids = ids[: self.length[i]]
        return torch.tensor(ids[ids > 3].astype(np.int64))


def pad(docs):
    lengths = torch.tensor([len(d) for d in docs])
    return pad_sequence(docs, batch_first=True, padding_value=0), lengths


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", default="{}")
    kw = dict(batch_size=24, shuffle=True, num_workers=2, collate_fn=pad)
    kw.update(json.loads(ap.parse_args().options))
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.manual_seed(48)
    torch.set_num_threads(1)
    for ids, lengths in DataLoader(Documents(1440), **kw):
        time.sleep(0.002 + 1e-5 * ids.shape[1])


if __name__ == "__main__":
    main()
