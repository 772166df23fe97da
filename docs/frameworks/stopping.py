"""What the programs stop_*.py share. Each trains a small model for three epochs of ten batches, in one of three runs:

whole      undisturbed; like all, it saves a checkpoint after STOP batches
stopped    is killed by SIGKILL two batches later
resumed    another process, with different seeds, resumes from the checkpoint of the stopped one

They are run by docs/make/stops.py as `stop_NAME.py CASE RUN FOLDER WORKERS STOP`, and log every batch.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

EPOCHS, BATCHES, BATCH_SIZE = 3, 10, 4


def sample(key: int) -> dict[str, Any]:
    noise = [random.random(), np.random.random(), *torch.rand(6).tolist()]
    return {"keys": key, "noise": torch.tensor(noise, dtype=torch.float32)}


class Noisy(torch.utils.data.Dataset):
    """Samples with a random transform, which draws from all three generators."""

    def __init__(self, ranks: int = 1) -> None:
        self.n = BATCHES * BATCH_SIZE * ranks

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, key: int) -> dict[str, Any]:
        return sample(key)


class Stream(torch.utils.data.IterableDataset):
    """The same as a stream."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return map(sample, range(first, BATCHES * BATCH_SIZE, step))


class LongStream(Stream):
    """And it has a length."""

    def __len__(self) -> int:
        return BATCHES * BATCH_SIZE


class Net(torch.nn.Module):
    """Its dropout draws from the generator of main. It logs what it is trained with, and the loss."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
        self.run = run

    def forward(self, keys: torch.Tensor, noise: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = torch.nn.functional.cross_entropy(self.layers(noise), keys % 2)
        with (self.run.folder / f"{self.run.name}.{os.environ.get('LOCAL_RANK', '0')}").open("a") as log:
            log.write(json.dumps([keys.tolist(), noise.tolist(), loss.item()]) + "\n")
        return {"loss": loss}


class Run:
    """Which of the runs this process is."""

    def __init__(self) -> None:
        self.case, self.name, folder, workers, stop = sys.argv[1:]
        self.folder, self.workers, self.stop = Path(folder), int(workers), int(stop)
        self.resumed = self.name == "resumed"
        self.seed = 2 if self.resumed and "same seeds" not in self.case else 1
        random.seed(self.seed)
        np.random.seed(self.seed)
        torch.manual_seed(self.seed)
        torch.set_num_threads(1)

    def trained(self, batches: int) -> None:
        if self.name == "stopped" and batches == self.stop + 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def options(self) -> dict[str, Any]:
        """Of the loader."""
        return {"batch_size": BATCH_SIZE, "shuffle": True, "num_workers": self.workers}
