"""Two workers compute the samples, a core each; the training step takes next to nothing. More workers would help
where there are more cores. The validation loader and its sanity check cost little."""

import functools
import logging
import warnings

import lightning
import torch
from common import RANKS, Samples, clock, compute, model

FRAMEWORK, VERDICTS, RANKS_TOO = "lightning", {"workers"}, True
ADVICE = r"num_workers=[3-9]|more workers can help|More workers would not help"


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model()

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("loss", self.training_step(batch, _), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    load = functools.partial(torch.utils.data.DataLoader, batch_size=8, num_workers=2)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=RANKS, strategy="ddp" if RANKS > 1 else "auto",
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    with clock():
        work = functools.partial(compute, 4)
        trainer.fit(Module(), load(Samples(640 * RANKS, work), shuffle=True), load(Samples(16)))
