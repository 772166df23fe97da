"""Two workers are the limit, and nearly all they do is collate: 20 ms a batch, in which they wait."""

import torch
from common import train, wait
from monai.data import DataLoader, Dataset, list_data_collate
from monai.transforms import Compose, EnsureTyped, ScaleIntensityd

FRAMEWORK, VERDICTS, ADVICE = "monai", {"workers"}, r"[Cc]ollat"


def collate(samples):
    wait(20)
    return list_data_collate(samples)


if __name__ == "__main__":
    change = Compose([ScaleIntensityd("x"), EnsureTyped("x", track_meta=False)])
    data = Dataset([{"x": torch.randn(1, 8), "y": key % 2} for key in range(640)], change)
    loader = DataLoader(data, batch_size=8, num_workers=2, collate_fn=collate)
    train(loader, lambda batch: (batch["x"][:, 0], batch["y"]))
