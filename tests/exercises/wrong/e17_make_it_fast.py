"""Exercise 17: wrong answers."""

from tests.exercises.wrong.edits import Wrong

LOADER = "num_workers=4, persistent_workers=True"
RECORDING = 'read(self.folder, f"{index:03}.json")'
STEP = "            step(ids, values, labels)\n"
EACH = '[read(folder, "labels.json")[k] + 0 * len(read(folder, "calibration.json")) for k in ids]'
CACHED = """
        if index not in kept:
            kept[index] = read(self.folder, f"{index:03}.json")
        channels = torch.tensor(kept[index])
"""
WRONG = {
    "caches": Wrong(
        "keeps the recordings",
        (f"        channels = torch.tensor({RECORDING})\n", CACHED),
        ("class Recordings", "kept = {}\n\n\nclass Recordings"),
        (LOADER, "num_workers=0"),
    ),
    "drops_an_epoch": Wrong("another number of epochs", ("for _ in range(EPOCHS):", "for _ in range(EPOCHS - 1):")),
    "drops_half": Wrong("skips or repeats samples", ("return RECORDINGS", "return RECORDINGS // 2")),
    "faster_storage": Wrong("changes what is given", ("LATENCY = 0.02", "LATENCY = 0.002")),
    "forgets_the_scales": Wrong("other values", (" / self.scales  #", "  #")),
    "larger_batches": Wrong("other batches", ("BATCH_SIZE, shuffle=True", "2 * BATCH_SIZE, shuffle=True")),
    "not_shuffled": Wrong("does not shuffle", ("shuffle=True", "shuffle=False")),
    "one_order": Wrong(
        "does not shuffle",
        ("    loader = DataLoader", "    order = torch.randperm(RECORDINGS).tolist()\n    loader = DataLoader"),
        ("shuffle=True", "sampler=order"),
    ),
    "one_worker": Wrong(
        "too slow", (LOADER, "num_workers=1"), ("self.labels[index]", "read(self.folder, 'labels.json')[index]")
    ),
    "own_read": Wrong("does not use read()", (RECORDING, "json.loads((self.folder / f'{index:03}.json').read_text())")),
    "rebinds_read": Wrong(
        "changes what is given",
        (
            "class Recordings",
            "def read(folder, name):\n    return json.loads((folder / name).read_text())\n\n\nclass Recordings",
        ),
    ),
    "smaller_step": Wrong("changes what is given", ("0.01 * gradient", "0.1 * gradient")),
    "work_in_main": Wrong("too slow", (STEP, f"            step(ids, values, torch.tensor({EACH}))\n")),
}
