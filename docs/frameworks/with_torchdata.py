"""Main makes the batches itself, and does not train meanwhile: workers would help. Halfway it is resumed from a
checkpoint of the loader."""

import functools

from common import Samples, compute, train
from torchdata.stateful_dataloader import StatefulDataLoader

FRAMEWORK, VERDICTS, ADVICE = "torchdata", {"no_workers"}, r"num_workers=[1-9]|Workers make batches"


def halves(data):
    loader, resumed = StatefulDataLoader(data, 8), StatefulDataLoader(data, 8)
    for step, batch in enumerate(loader):
        yield batch
        if step == 39:
            break
    resumed.load_state_dict(loader.state_dict())
    yield from resumed


if __name__ == "__main__":
    train(halves(Samples(640, functools.partial(compute, 2))))
