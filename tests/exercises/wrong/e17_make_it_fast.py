"""Exercise 17: wrong answers."""

from tests.exercises.wrong.edits import Wrong

LOADER = "num_workers=4, persistent_workers=True"
RECORDING = 'read(self.folder, f"{index:03}.json")'
STEP = "            step(ids, values, labels)\n"
EACH = '[read(folder, "labels.json")[k] + 0 * len(read(folder, "calibration.json")) for k in ids]'
ORDERS = """
class Orders:
    def __init__(self):
        self.orders = {orders}

    def __len__(self):
        return RECORDINGS

    def __iter__(self):
        return iter(self.orders.pop(0).tolist())


class Recordings"""
DRAWN = "torch.randperm(RECORDINGS)"
IN_ALL_THREADS = """
from concurrent.futures import ThreadPoolExecutor

recordings = Recordings(folder)

def load_and_train(numbers):
    ids, values, labels = zip(*(recordings[number] for number in numbers.tolist()))
    step(torch.tensor(ids), torch.stack(values), torch.tensor(labels))

with ThreadPoolExecutor(8) as pool:
    for _ in range(EPOCHS):
        list(pool.map(load_and_train, torch.randperm(RECORDINGS).split(BATCH_SIZE)))
"""
ELSEWHERE = """
{imported}

def one_epoch():
    for ids, values, labels in DataLoader(Recordings(folder), BATCH_SIZE, shuffle=True):
        step(ids, values, labels)

epochs = [{kind}(target=one_epoch) for _ in range(EPOCHS)]
for epoch in epochs:
    epoch.start()
{then}
"""
JOINED = "for epoch in epochs:\n    epoch.join()"


def ordered(orders: str) -> Wrong:
    """The samples of each epoch in one of these."""
    edits = ("shuffle=True", "sampler=Orders()"), ("class Recordings", ORDERS.format(orders=orders))
    return Wrong("does not shuffle", *edits)


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
    "float_ids": Wrong("other batches", (STEP, STEP.replace("ids", "torch.Tensor(ids.tolist())"))),
    "forgets_the_scales": Wrong("other values", (" / self.scales  #", "  #")),
    "larger_batches": Wrong("other batches", ("BATCH_SIZE, shuffle=True", "2 * BATCH_SIZE, shuffle=True")),
    "generator": Wrong("takes no steps", (STEP, STEP.replace("step", "yield step"))),
    "in_all_threads": Wrong("steps at the same time", train=IN_ALL_THREADS),
    "in_other_processes": Wrong(
        "takes no steps",
        train=ELSEWHERE.format(
            imported="import multiprocessing", kind="multiprocessing.get_context('fork').Process", then=JOINED
        ),
    ),
    "not_shuffled": Wrong("does not shuffle", ("shuffle=True", "shuffle=False")),
    "not_waited_for": Wrong(
        "takes no steps", train=ELSEWHERE.format(imported="import threading", kind="threading.Thread", then="")
    ),
    "one_order": Wrong(
        "does not shuffle",
        ("    loader = DataLoader", "    order = torch.randperm(RECORDINGS).tolist()\n    loader = DataLoader"),
        ("shuffle=True", "sampler=order"),
    ),
    "one_order_after_the_first": ordered(f"[{DRAWN}, *[{DRAWN}] * 3]"),
    "one_order_rotated": ordered(f"(lambda first: [first.roll(3 * k) for k in range(EPOCHS)])({DRAWN})"),
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
    "shuffled_after_the_first": ordered(f"[torch.arange(RECORDINGS), *({DRAWN} for _ in range(3))]"),
    "shuffled_batches": ordered(
        "[torch.arange(RECORDINGS).view(-1, 8)[torch.randperm(8)].flatten() for _ in range(EPOCHS)]"
    ),
    "smaller_step": Wrong("changes what is given", ("0.01 * gradient", "0.1 * gradient")),
    "spawns": Wrong("does not fork", (LOADER, f"{LOADER}, multiprocessing_context='spawn'")),
    "work_in_main": Wrong("too slow", (STEP, f"            step(ids, values, torch.tensor({EACH}))\n")),
}
