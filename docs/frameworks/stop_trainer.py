"""The Trainer saves no state of a loader. It draws the epoch's keys again and skips those that were used, in a loader
of torch's that it builds from yours; with `ignore_data_skip` it leaves that to you."""

import warnings

import torch
from stopping import BATCH_SIZE, BATCHES, EPOCHS, Net, Noisy, Run
from transformers import Trainer, TrainerCallback, TrainingArguments

import minidl

FRAMEWORK = "transformers"
CASES = (
    ("torch, same seeds", 15, "the Trainer's own loader, the same seeds", "the same samples, different random numbers"),
    (
        "minidl",
        15,
        "minidl's; the callback below, `ignore_data_skip`",
        ("the same run", "the same samples, different random numbers"),
    ),
    ("minidl", 10, "the same, after the last batch of an epoch", "the same run"),
)


class Place(TrainerCallback):
    """Saves the loader's state beside the Trainer's checkpoint. The Trainer counts the batches and doesn't ask for one
    more, so the loader can't know that the epoch is over."""

    def on_save(self, arguments, state, control, train_dataloader, **_):
        place = train_dataloader.state_dict()
        place["_iterator_finished"] |= state.global_step % BATCHES == 0
        torch.save(place, f"{arguments.output_dir}/checkpoint-{state.global_step}/loader.pt")


class Ending(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        run.trained(state.global_step)


class OfMinidl(Trainer):
    def get_train_dataloader(self):
        loader = minidl.StatefulDataLoader(self.train_dataset, **run.options())
        if run.resumed:
            loader.load_state_dict(torch.load(checkpoint / "loader.pt"))
        return loader


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run = Run()
    checkpoint = run.folder / f"checkpoint-{run.stop}"
    arguments = TrainingArguments(
        str(run.folder), per_device_train_batch_size=BATCH_SIZE, num_train_epochs=EPOCHS, seed=run.seed, use_cpu=True,
        dataloader_num_workers=run.workers, ignore_data_skip=run.case == "minidl", save_steps=run.stop, report_to=[],
        logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainers, callbacks = (Trainer, [Ending()]) if run.case.startswith("torch") else (OfMinidl, [Place(), Ending()])
    trainer = trainers(Net(run), arguments, train_dataset=Noisy(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=str(checkpoint) if run.resumed else None)
