"""The data is in memory, so making a batch takes far less than moving it from one of two workers: without workers it
would be faster."""

import tempfile

import torch
from common import RANKS, clock
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

FRAMEWORK, VERDICTS, ADVICE, RANKS_TOO = "transformers", {"moving"}, r"num_workers=0", True


class InMemory(torch.utils.data.Dataset):
    tokens, classes = torch.randint(100, (1600, 16)), torch.randint(2, (1600,))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, key):
        mask = torch.ones(16, dtype=torch.long)
        return {"input_ids": self.tokens[key], "attention_mask": mask, "labels": self.classes[key]}


if __name__ == "__main__":
    config = BertConfig(
        vocab_size=100, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        max_position_embeddings=16,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=4 // RANKS, num_train_epochs=1, dataloader_num_workers=2, use_cpu=True,
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=InMemory())
        with clock():
            trainer.train()
