"""One worker computes the samples; there are more cores. More workers would help."""

import torch
from common import compute, train
from datasets import Dataset

FRAMEWORK, VERDICTS, ADVICE = "datasets", {"workers"}, r"num_workers=[2-9]|more workers can help"


def transform(rows):
    for _ in rows["y"]:
        compute(2)
    return {"x": torch.tensor(rows["x"]), "y": torch.tensor(rows["y"])}


if __name__ == "__main__":
    data = Dataset.from_dict({"x": torch.randn(640, 8).tolist(), "y": [key % 2 for key in range(640)]})
    loader = torch.utils.data.DataLoader(data.with_transform(transform), 8, num_workers=1, shuffle=True)
    train(loader, lambda batch: (batch["x"], batch["y"]))
