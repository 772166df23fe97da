"""Every sample appears num_workers times

Each worker has a copy of an iterable dataset and iterates over all of it. The cure: let each take its share.
"""

import itertools
import sys
from collections.abc import Iterator

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, cured: bool) -> None:
        self.cured = cured

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if self.cured and info is not None:
            return itertools.islice(iter(range(12)), info.id, None, info.num_workers)
        return iter(range(12))


if __name__ == "__main__":
    loader = DataLoader(Lines("cured" in sys.argv), batch_size=3, num_workers=2)
    samples = [int(sample) for batch in loader for sample in batch]
    print(f"{len(samples)} samples, {len(set(samples))} different")
