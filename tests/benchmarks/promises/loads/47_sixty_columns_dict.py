"""Recommender batches: a dict of 60 small tensors, one a categorical column.

TRUTH: gathering the 60 columns takes under 2 ms, but with workers each of the
60 tensors becomes its own shared-memory file whose descriptor the main process
has to fetch; that costs several times more than the work itself.
FIX: num_workers=0 (saves about half or more); more workers, prefetch_factor
and in_order do not help, as the main process opens every tensor itself.
"""
import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COLUMNS = 60


class Interactions(Dataset):
    def __init__(self, rows):
        g = torch.Generator().manual_seed(47)
        self.cols = {f"c{k:02d}": torch.randint(0, 500, (rows,), generator=g) for k in range(COLUMNS)}
        self.click = torch.randint(0, 2, (rows,), generator=g).float()

    def __len__(self):
        return len(self.click)

    def __getitem__(self, i):
        return self.__getitems__([i])

    def __getitems__(self, idx):
        idx = torch.tensor(idx)
        return {name: c[idx] for name, c in self.cols.items()}, self.click[idx]


def keep(batch):
    return batch


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Embedding(500, 1)

    def forward(self, feats):
        return self.bias(torch.stack(list(feats.values()), 1)).sum((1, 2))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", default="{}")
    opts = dict(batch_size=128, shuffle=True, num_workers=2, collate_fn=keep, persistent_workers=True)
    opts.update(json.loads(ap.parse_args().options))
    if opts["num_workers"] == 0:
        opts.pop("prefetch_factor", None)
        opts.pop("persistent_workers", None)
    torch.manual_seed(47)
    torch.set_num_threads(1)
    loader = DataLoader(Interactions(25_600), **opts)
    model = Wide()
    optim = torch.optim.Adagrad(model.parameters(), lr=0.02)
    for epoch in range(2):
        for feats, click in loader:
            optim.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(feats), click).backward()
            optim.step()


if __name__ == "__main__":
    main()
