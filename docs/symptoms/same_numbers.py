"""The same random numbers in every worker

torch seeds torch, numpy and random anew in each worker, but it doesn't know a generator of the dataset's own: every
worker gets a copy of it, in the same state. The cure is to make it in the worker, from the worker's seed.
"""

import sys

import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Noise(Dataset):
    def __init__(self, cured: bool) -> None:
        self.random = None if cured else np.random.default_rng(1)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if self.random is None:
            info = get_worker_info()
            self.random = np.random.default_rng(info.seed if info else None)
        return int(self.random.integers(1_000_000))


if __name__ == "__main__":
    loader = DataLoader(Noise("cured" in sys.argv), batch_size=2, num_workers=2)
    drawn = [int(number) for batch in loader for number in batch]
    print(f"{len(drawn)} samples, {len(set(drawn))} different")
