"""blocks"""

import math

import torch


class DistributedSampler:
    def __iter__(self):
        keys = list(range(len(self.dataset)))
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            keys = torch.randperm(len(self.dataset), generator=generator).tolist()
        if not self.drop_last:
            keys = keys * math.ceil(self.total_size / len(keys))
        keys = keys[: self.total_size]
        begin = self.rank * self.num_samples
        return iter(keys[begin : begin + self.num_samples])
