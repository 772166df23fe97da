"""Image classification: JPEGs decoded with PIL, augmented, num_workers left at 0.

TRUTH: decoding and resizing 12 images takes about 110 ms of CPU in the main
process, after which the (imitated) device works for 70 ms; the two alternate.
FIX: num_workers=2 overlaps them and leaves about the device's time (saves
about 55 %); num_workers=1 saves about 35 to 40 %; more than 2 adds nothing.
"""
import argparse
import io
import json
import time

import numpy as np
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset


def fake_photo(rng):
    blocks = rng.integers(0, 255, (48, 64, 3), dtype=np.uint8)
    pixels = np.kron(blocks, np.ones((10, 10, 1), dtype=np.uint8))
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=88)
    return out.getvalue()


class Photos(Dataset):
    def __init__(self, n, files=20):
        rng = np.random.default_rng(49)
        self.files = [fake_photo(rng) for _ in range(files)]
        self.flip = rng.random(n) < 0.5
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        img = Image.open(io.BytesIO(self.files[i % len(self.files)])).convert("RGB")
        img = img.resize((224, 224), Image.BILINEAR)
        if self.flip[i]:
            img = ImageOps.mirror(img)
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1)
        return x, i % 5


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--options", default="{}")
    options = dict(batch_size=12, shuffle=True, drop_last=True)
    options.update(json.loads(ap.parse_args().options))
    if options.get("num_workers", 0) == 0:
        options.pop("prefetch_factor", None)
        options.pop("persistent_workers", None)
    torch.manual_seed(49)
    torch.set_num_threads(1)
    for x, y in DataLoader(Photos(12 * 24), **options):
        x = x[:, :, ::4, ::4].float().div(255)
        time.sleep(0.07)
