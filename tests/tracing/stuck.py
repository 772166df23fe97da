"""A training program that stops somewhere: `stuck.py LOADER WHERE`. The line is marked. With WHERE "nowhere" it goes on
for ever, with "break", "evaluates" or "prepares" it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import subprocess
import sys
import threading
import time
from typing import Any

import torch.utils.data

import minidl

loader_of, where = sys.argv[1:]
never = threading.Event()
full: Any = multiprocessing.Queue(1)
ones = torch.ones((where == "openmp") << 20) + 1  # by threads of main
held: Any = {"copied": threading.Lock(), "shared": multiprocessing.Lock()}.get(where)


class Numbers:
    def __len__(self) -> int:
        return 40 if where in ("evaluation", "evaluates", "prepares", "ahead", "behind") else 100_000

    def __getitem__(self, index: int) -> int:
        if index >= 20 and where == "dataset":
            never.wait()  # stuck: dataset
        if where == "openmp":
            torch.set_num_threads(2)
            return (ones + index).numel()  # stuck: openmp
        if where == "first":
            never.wait()  # stuck: first
        if index >= 20 and where == "mark":
            full.get()  # stuck: mark
        if index >= 20 and held is not None:
            with held, held:  # stuck: copied # stuck: shared
                pass
        all(index >= 20 and where == "computes" for _ in iter(int, 1))  # stuck: computes
        if index >= 20 and where == "program":
            subprocess.Popen([sys.executable, "-c", "print('.' * 100_000)"], stdout=-1).wait()  # stuck: program
        while index >= 20 and where == "polls":
            time.sleep(0.01)  # stuck: polls
        while index >= 20 and where == "queue":
            full.put(index)  # stuck: queue
        return index


class Sampler:
    def __iter__(self) -> Any:
        for index in range(len(Numbers())):
            if index >= 20 and where == "sampler":
                never.wait()  # stuck: sampler
            yield index

    def __len__(self) -> int:
        return len(Numbers())


def collate(samples: list[int]) -> list[int]:
    if samples[0] >= 20 and where == "collate":
        never.wait()  # stuck: collate
    return samples


def init(worker_id: int) -> None:
    if where == "init":
        never.wait()  # stuck: init


def fill(batches: queue.Queue[Any], loader: Any) -> None:
    for batch in loader:
        batches.put(batch)
    while where == "behind":
        batches.put(None)  # stuck: behind


def main() -> None:
    DataLoader: Any = torch.utils.data.DataLoader if loader_of == "torch" else minidl.DataLoader
    if where == "prepares":
        time.sleep(1)
    if where == "init":  # main waits long before any worker comes to it
        os.register_at_fork(after_in_child=lambda: time.sleep(0.2))
    options: dict[str, Any] = {
        "num_workers": 0 if where == "dataset" else 2, "sampler": Sampler(), "collate_fn": collate,
    }  # fmt: skip
    loader = DataLoader(Numbers(), 4, worker_init_fn=init, **options)
    if where in ("ahead", "behind"):  # another thread iterates, and says nothing when it ends, or cannot say it
        batches: queue.Queue[Any] = queue.Queue(len(loader))
        thread = threading.Thread(target=fill, args=(batches, loader), daemon=True)
        thread.start()
        while where == "ahead":
            batches.get()  # stuck: ahead
        thread.join()
    for number, _batch in enumerate(loader):
        time.sleep(0.01)
        if number == 6 and where in ("training", "caught"):
            never.wait()  # stuck: training # stuck: caught
        if number == 6 and where == "break":
            break
    if where == "evaluation":
        never.wait()  # stuck: evaluation
    if where == "evaluates":
        time.sleep(1)


if __name__ == "__main__":
    if where == "caught":  # as a program does that saves its model then
        with contextlib.suppress(KeyboardInterrupt):
            main()
    else:
        main()
