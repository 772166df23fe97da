"""reads ahead"""


class BatchSampler:
    def __iter__(self):
        every = list(self.sampler)
        for begin in range(0, len(every), self.batch_size):
            keys = every[begin : begin + self.batch_size]
            if len(keys) == self.batch_size or not self.drop_last:
                yield keys
