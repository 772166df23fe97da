"""Every 25 steps a synchronous checkpoint (serialise, "upload").

TRUTH: the main loop: a checkpoint of about 0.6 s (sleep, plus serialising some MB) every
25 steps of 20 ms: more than half of the time; between them the step limits. The loader is
fine: queue full, at any time.
FIX: checkpoint less often or in a background thread: about 2x. DataLoader options: nothing.
"""

import argparse
import io
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Bits(Dataset):
    def __len__(self):
        return 32 * 100

    def __getitem__(self, i):
        return torch.tensor([(i >> b) & 1 for b in range(16)], dtype=torch.float32)


def save_checkpoint(net, bucket):
    buf = io.BytesIO()
    torch.save(net.state_dict(), buf)
    bucket.append(len(buf.getvalue()))
    time.sleep(0.6)


def main(options):
    kw = dict(batch_size=32, shuffle=True, num_workers=2)
    kw.update(options)
    if kw["num_workers"] == 0:
        kw.pop("prefetch_factor", None)
        kw.pop("persistent_workers", None)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 1024),
        torch.nn.ReLU(),
        torch.nn.Linear(1024, 1),
    )
    bucket = []
    for step, x in enumerate(DataLoader(Bits(), **kw), 1):
        with torch.no_grad():
            net(x)
        time.sleep(0.018)
        if step % 25 == 0:
            save_checkpoint(net, bucket)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--options", type=json.loads, default={})
    main(p.parse_args().options)
