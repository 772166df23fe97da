"""rank mixed into the seed"""

import math

import torch


class DistributedSampler:
    def __iter__(self):
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch + self.rank)
            keys = torch.randperm(len(self.dataset), generator=generator).tolist()
        else:
            keys = list(range(len(self.dataset)))
        if self.drop_last:
            keys = keys[: self.total_size]
        else:
            missing = self.total_size - len(keys)
            passes = math.ceil(missing / len(keys)) if missing > len(keys) else 1
            keys += (keys * passes)[:missing]
        assert len(keys) == self.total_size
        return iter(keys[self.rank :: self.num_replicas])
