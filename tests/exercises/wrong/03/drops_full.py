"""drops a full last batch"""


class BatchSampler:
    def __iter__(self):
        keys = []
        for key in self.sampler:
            if len(keys) == self.batch_size:
                yield keys
                keys = []
            keys.append(key)
        if keys and not self.drop_last:
            yield keys
