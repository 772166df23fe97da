"""Exercise 3: wrong answers. Most are edits of a loop that gathers keys, which is right."""

from tests.exercises.wrong.edits import Wrong

LOOP = """
    keys = []
    for key in self.sampler:
        keys.append(key)
        if len(keys) == self.batch_size:
            yield keys
            keys = []
    if keys and not self.drop_last:
        yield keys
"""
WRONG = {
    "hides_an_error": Wrong(
        "another case",
        __iter__="""
            keys = iter(self.sampler)
            while True:
                batch = []
                try:
                    while len(batch) < self.batch_size:
                        batch.append(next(keys))
                except Exception:
                    if batch and not self.drop_last:
                        yield batch
                    return
                yield batch
        """,
    ),
    "drops_full": Wrong(
        "drops a full last batch",
        __iter__="""
            keys = []
            for key in self.sampler:
                if len(keys) == self.batch_size:
                    yield keys
                    keys = []
                keys.append(key)
            if keys and not self.drop_last:
                yield keys
        """,
    ),
    "empty": Wrong("an empty list", ("if keys and", "if"), __iter__=LOOP),
    "loses_tail": Wrong("loses the tail", ("if keys and not self.drop_last:", "if False:"), __iter__=LOOP),
    "none_ends": Wrong(
        "takes a key for the end",
        (
            "for key in self.sampler:",
            "source = iter(self.sampler)\n        while (key := next(source, None)) is not None:",
        ),
        __iter__=LOOP,
    ),
    "reads_ahead": Wrong("reads ahead", ("iter(self.sampler)", "iter(list(self.sampler))")),
    "reused": Wrong(
        "one reused list", ("        keys = []\n        if", "        keys.clear()\n        if"), __iter__=LOOP
    ),
    "reused_in_place": Wrong(
        "one reused list",
        __iter__="""
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
        """,
    ),
    "compares_keys": Wrong(
        "another case",
        __iter__="""
            keys, end, batch = iter(self.sampler), object(), []
            for key in iter(lambda: next(keys, end), end):
                batch.append(key)
                if len(batch) == self.batch_size:
                    yield batch
                    batch = []
            if batch and not self.drop_last:
                yield batch
        """,
    ),
}
