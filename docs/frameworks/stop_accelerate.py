"""`prepare` with `use_stateful_dataloader` turns a loader of torch's into torchdata's StatefulDataLoader, and leaves
any other loader alone. It fetches one batch ahead and saves the state from before the training step, so main's random
numbers come in another order. A registered loader is saved as it is at the checkpoint; accelerate then neither moves
its batches to a device nor shares them among ranks: use a DistributedSampler."""

import warnings

import torch
import torchdata.stateful_dataloader
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from stopping import BATCHES, EPOCHS, Net, Noisy, Run

import minidl

FRAMEWORK = "accelerate"
CASES = (
    ("prepared, same seeds", 15, "torch's, `use_stateful_dataloader`, the same seeds", "different samples"),
    ("alone", 5, "minidl's, `use_stateful_dataloader`: not saved", "different samples"),
    (
        "registered",
        15,
        "minidl's; `accelerator.register_for_checkpointing(loader)`",
        ("the same run", "the same samples, different random numbers"),
    ),
    ("registered", 10, "the same, after the last batch of an epoch", "the same run"),
    (
        "replaced",
        15,
        "torchdata's loader replaced by minidl's, `use_stateful_dataloader`",
        ("different samples: those", "the same samples, different random numbers"),
    ),
)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run = Run()
    if "replaced" in run.case:  # before accelerate asks for it
        torchdata.stateful_dataloader.StatefulDataLoader = minidl.StatefulDataLoader
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    ours = run.case in ("alone", "registered")
    loader = (minidl.StatefulDataLoader if ours else torch.utils.data.DataLoader)(Noisy(), **run.options())
    if run.case == "registered":
        accelerator.register_for_checkpointing(loader)
    net, batches = Net(run), 0
    net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1), loader)
    if run.resumed:
        accelerator.load_state(run.folder / "checkpoint")
        batches = run.stop
    while batches < EPOCHS * BATCHES:
        for batch in loader:
            accelerator.backward(net(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
            batches += 1
            if batches == run.stop:
                accelerator.save_state(run.folder / "checkpoint")
            run.trained(batches)
            if batches == EPOCHS * BATCHES:
                break
    accelerator.end_training()
