"""pads once only"""

import torch


class DistributedSampler:
    def __iter__(self):
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            keys = torch.randperm(len(self.dataset), generator=generator).tolist()
        else:
            keys = list(range(len(self.dataset)))
        if self.drop_last:
            keys = keys[: self.total_size]
        else:
            keys += keys[: self.total_size - len(keys)]
        return iter(keys[self.rank :: self.num_replicas])
