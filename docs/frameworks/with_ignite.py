"""Drawing the keys of a batch takes 12 ms, in main; two workers would be quick enough."""

import torch
from common import Samples, clock, model, wait
from ignite.engine import create_supervised_trainer

FRAMEWORK, VERDICTS, ADVICE = "pytorch-ignite", {"sampler"}, ""


class Weighted(torch.utils.data.Sampler):
    def __len__(self):
        return 80

    def __iter__(self):
        for step in range(80):
            wait(12)
            yield list(range(8 * step, 8 * step + 8))


if __name__ == "__main__":
    net = model()
    trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), 0.1), torch.nn.functional.cross_entropy)
    loader = torch.utils.data.DataLoader(Samples(640), num_workers=2, batch_sampler=Weighted())
    with clock():
        trainer.run(loader, max_epochs=1)
