"""Lightning saves the `state_dict()` of the training loaders in its checkpoint, and loads it if the epoch was not over.
Only the first rank's is saved, and every rank gets it, which minidl's loader refuses: its keys differ. From a loader
without a length Lightning fetches one batch ahead, so the state is one batch too far."""

import logging
import os
import warnings

import lightning
import torch
from stopping import EPOCHS, LongStream, Net, Noisy, Run, Stream
from torchdata.stateful_dataloader import StatefulDataLoader

import minidl

FRAMEWORK, RANKS = "lightning", 2
CASES = (
    ("torch", 5, "torch's DataLoader", "different samples"),
    ("torchdata", 15, "torchdata's StatefulDataLoader", "the same samples, different random numbers"),
    ("minidl", 15, "minidl's StatefulDataLoader", ("the same run", "the same samples, different random numbers")),
    ("minidl, stream", 15, "minidl's, a stream without `__len__`", "1 batch is missing"),
    ("minidl, long stream", 15, "minidl's, a stream with `__len__`", "the same run"),
    ("torchdata, ranks", 15, "torchdata's, two ranks, torch's DistributedSampler", "different samples"),
    ("torchdata", 10, "torchdata's, after the last batch of an epoch", "10 batches are missing"),
    ("minidl", 10, "minidl's, after the last batch of an epoch", "10 batches are missing"),
    ("minidl, callback", 10, "the same, with the callback below", "the same run"),
    ("minidl, end", 10, "minidl's, at the end of an epoch (`every_n_epochs`)", "different samples"),
    ("minidl, end, callback", 10, "the same, with the callback below and its loader", "the same run"),
    (
        "minidl, callback",
        15,
        "the callback below, in the middle of an epoch",
        ("the same run", "the same samples, different random numbers"),
    ),
)


class Loader(minidl.StatefulDataLoader, torch.utils.data.DataLoader):
    """It is also torch's: Lightning calls `iter()` on any other loader, to see whether it can be iterated, and that
    would use up a state loaded before."""


class Place(lightning.Callback):
    """Lightning counts the batches and doesn't ask for one more, so the loader can't know that the epoch is over. And
    it loads a state only in mid-epoch."""

    def __init__(self, loader):
        self.loader = loader

    def on_save_checkpoint(self, trainer, module, checkpoint):
        [state] = checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"]
        state["_iterator_finished"] |= trainer.fit_loop.epoch_loop.batch_progress.is_last_batch

    def on_load_checkpoint(self, trainer, module, checkpoint):
        [state] = checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"]
        self.loader.load_state_dict(state)


class Module(lightning.LightningModule):
    def __init__(self, run):
        super().__init__()
        self.net = Net(run)

    def training_step(self, batch, _):
        return self.net(**batch)["loss"]

    def on_train_batch_end(self, *_):
        self.net.run.trained(self.global_step)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def loader_of(run):
    kinds = {"torch": torch.utils.data.DataLoader, "torchdata": StatefulDataLoader, "minidl": minidl.StatefulDataLoader}
    kind = Loader if "callback" in run.case else kinds[run.case.split(",")[0]]
    options = run.options()
    if "ranks" in run.case:  # Lightning would replace the sampler of a loader of torch's, and of no other
        samplers = minidl if kind is minidl.StatefulDataLoader else torch.utils.data
        del options["shuffle"]
        options["sampler"] = samplers.DistributedSampler(Noisy(RANKS), RANKS, int(os.environ.get("LOCAL_RANK", "0")))
        return kind(Noisy(RANKS), **options)
    if "stream" in run.case:
        del options["shuffle"]
        return kind(LongStream() if "long" in run.case else Stream(), **options)
    return kind(Noisy(), **options)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    run = Run()
    loader = loader_of(run)
    every = {"every_n_epochs": 1} if "end" in run.case else {"every_n_train_steps": run.stop}
    callbacks = [lightning.pytorch.callbacks.ModelCheckpoint(run.folder, "{step}", save_top_k=-1, **every)]
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=RANKS if "ranks" in run.case else 1,
        strategy="ddp" if "ranks" in run.case else "auto",
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[*callbacks, *([Place(loader)] if "callback" in run.case else [])],
    )  # fmt: skip
    trainer.fit(Module(run), loader, ckpt_path=run.folder / f"step={run.stop}.ckpt" if run.resumed else None)
