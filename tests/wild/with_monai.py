"""Two workers are the limit, and nearly all they do is collate: 20 ms a batch, in which they wait."""

import torch
from common import clock, model, wait
from monai.data import DataLoader, Dataset, list_data_collate
from monai.transforms import Compose, EnsureTyped, ScaleIntensityd

FRAMEWORK, VERDICTS, ADVICE = "monai", {"workers"}, r"[Cc]ollat"


def collate(samples):
    wait(20)
    return list_data_collate(samples)


if __name__ == "__main__":
    change = Compose([ScaleIntensityd("x"), EnsureTyped("x", track_meta=False)])
    data = Dataset([{"x": torch.randn(1, 8), "y": key % 2} for key in range(640)], change)
    loader, net = DataLoader(data, batch_size=8, num_workers=2, collate_fn=collate), model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with clock():
        for batch in loader:
            torch.nn.functional.cross_entropy(net(batch["x"][:, 0]), batch["y"]).backward()
            optimizer.step()
