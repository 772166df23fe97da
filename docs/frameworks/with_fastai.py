"""Six short epochs, and in each its two workers open the data anew, which takes 250 ms: start-up is the limit, and less
if main opened it once. (fastai's loader is not torch's DataLoader.)"""

import fastai.callback.progress  # noqa: F401  gives a learner its no_bar()
import torch
from common import Samples, clock, model, wait
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner

FRAMEWORK, VERDICTS, ADVICE = "fastai", {"startup"}, "Do in main"


class Opened(Samples):
    opened = False

    def __getitem__(self, key):
        if not self.opened:
            self.opened = True
            wait(250)
        return super().__getitem__(key)


if __name__ == "__main__":
    loaders = DataLoaders(DataLoader(Opened(80), bs=8, num_workers=2, shuffle=True), DataLoader(Samples(8), bs=8))
    learner = Learner(loaders, model(), loss_func=torch.nn.functional.cross_entropy)
    with clock(), learner.no_bar(), learner.no_logging():
        learner.fit(6)
