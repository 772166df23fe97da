"""an empty list"""


class BatchSampler:
    def __iter__(self):
        keys = []
        for key in self.sampler:
            keys.append(key)
            if len(keys) == self.batch_size:
                yield keys
                keys = []
        if not self.drop_last:
            yield keys
