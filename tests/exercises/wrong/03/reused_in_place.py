"""one reused list"""


class BatchSampler:
    def __iter__(self):
        keys = [None] * self.batch_size
        number = 0
        for key in self.sampler:
            keys[number] = key
            number += 1
            if number == self.batch_size:
                yield keys
                number = 0
        if number and not self.drop_last:
            yield keys[:number]
