"""takes a key for the end"""


class BatchSampler:
    def __iter__(self):
        source = iter(self.sampler)
        keys = []
        while (key := next(source, None)) is not None:
            keys.append(key)
            if len(keys) == self.batch_size:
                yield keys
                keys = []
        if keys and not self.drop_last:
            yield keys
