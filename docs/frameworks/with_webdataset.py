"""Two workers wait for their storage, 3 ms a sample. They use no core, so more of them would help."""

import functools
import tempfile

import torch
import webdataset
from common import train, wait

FRAMEWORK, VERDICTS, ADVICE = "webdataset", {"workers"}, r"num_workers=[3-9]|num_workers=1\d|more workers can help"


def write(folder):
    for shard in range(16):
        with webdataset.TarWriter(f"{folder}/{shard:02}.tar") as tar:
            for sample in range(40):
                tar.write({"__key__": f"{shard:02}{sample:02}", "x.pyd": torch.randn(8), "y.cls": sample % 2})
    return f"{folder}/{{00..15}}.tar"


def read(milliseconds, sample):
    wait(milliseconds)
    return sample["x.pyd"], sample["y.cls"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = webdataset.WebDataset(write(folder), shardshuffle=False).decode().map(functools.partial(read, 3))
        loader = webdataset.WebLoader(data.batched(8), batch_size=None, num_workers=2)
        train(loader, lambda batch: (batch[0], torch.as_tensor(batch[1])))
