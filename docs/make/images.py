"""A real load, for docs/views.md: a folder of PNG pictures, decoded, cropped and batched by torch's own DataLoader, for
a small model that classifies them.

    python -m tracing run docs/make/images.py

The first run makes the pictures, in a folder among the system's temporary files: noise, stripes and discs, from 64 to
900 pixels wide, so that decoding one takes from a fraction of a millisecond to tens of milliseconds.

Legend
    image   uint8 (3, 64, 64)    a random crop of a picture
    kind    int64 ()             what is on it: an index into KINDS
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch.utils.data
from PIL import Image
from torch import Tensor, nn

SIDE = 64
KINDS = ("noise", "stripes", "disc")


def make_picture(random: np.random.Generator, kind: str) -> np.ndarray:
    """uint8 (height, width, 3)"""
    height, width = (int(size) for size in random.integers(SIDE, 900, 2))
    y, x = np.mgrid[:height, :width]
    if kind == "noise":
        return random.integers(0, 256, (height, width, 3), np.uint8)
    if kind == "stripes":
        shape = np.sin(x * random.uniform(0.05, 0.5) + y * random.uniform(0.05, 0.5)) > 0
    else:
        shape = (x - width / 2) ** 2 + (y - height / 2) ** 2 < (min(height, width) / 2.5) ** 2
    colours = random.integers(0, 256, (2, 3), np.uint8)
    return colours[shape.astype(int)]


def make_folder(count: int) -> Path:
    """A folder with `count` pictures; those that exist already stay."""
    folder = Path(tempfile.gettempdir(), "minidl-images")
    folder.mkdir(exist_ok=True)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        path = folder / f"{number:04d}-{kind}.png"
        if not path.exists():
            whole = path.with_suffix(".part")  # until then another run must not find it
            Image.fromarray(make_picture(np.random.default_rng(number), kind)).save(whole, "png")
            whole.rename(path)
    return folder


class Images(torch.utils.data.Dataset):
    """A sample is a picture: {"image": uint8 (3, SIDE, SIDE), "kind": int64 ()}"""

    def __init__(self, folder: Path, count: int) -> None:
        self.paths = sorted(folder.glob("*.png"))[:count]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        path = self.paths[index]
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        top, left = (int(torch.randint(size - SIDE + 1, ())) for size in pixels.shape[:2])
        image = torch.from_numpy(pixels[top : top + SIDE, left : left + SIDE].copy()).permute(2, 0, 1).contiguous()
        return {"image": image, "kind": torch.tensor(KINDS.index(path.stem.partition("-")[2]))}


def train(count: int = 240) -> list[float]:
    """Train for an epoch; return the loss of each batch."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, len(KINDS)),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    images = Images(make_folder(count), count)
    for batch in torch.utils.data.DataLoader(images, batch_size=8, shuffle=True, num_workers=2):
        loss = nn.functional.cross_entropy(model(batch["image"] / 255), batch["kind"])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    losses = train()
    print(f"{len(losses)} batches of pictures, loss {losses[0]:.2f} → {losses[-1]:.2f}")
