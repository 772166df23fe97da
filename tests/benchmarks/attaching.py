"""The cost of attaching to and recording torch's own loader."""

from __future__ import annotations

import tempfile
from collections import deque
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter

import torch.utils.data

import tracing
from tests.benchmarks.loading import SKIPPED, SMALLEST, MadeAlready, batches_within, place_worker, seconds_per_batch
from tests.benchmarks.turns import Comparison, in_turns
from tracing.recording.torch_loader.attach import attach


def seconds_per_attached_batch(num_workers: int, batches: int) -> float:
    """As `seconds_per_batch`, for the smallest batches and torch's loader, attached."""
    dataset = MadeAlready(SMALLEST.sample)
    loader = torch.utils.data.DataLoader(
        dataset, SMALLEST.batch_size, num_workers=num_workers, worker_init_fn=place_worker
    )
    iterator = iter(attach(loader))
    deque(islice(iterator, SKIPPED), maxlen=0)
    begin = perf_counter()
    deque(islice(iterator, batches), maxlen=0)
    return (perf_counter() - begin) / batches


def compare_attaching(directory: Path, num_workers: int, seconds: float, turns: int) -> Comparison:
    """Seconds for each of the smallest batches: torch alone first; attached and recorded into `directory` second."""
    batches = batches_within(seconds, torch.utils.data, SMALLEST, num_workers)
    alone = partial(seconds_per_batch, torch.utils.data, SMALLEST, num_workers, batches)
    attached = partial(seconds_per_attached_batch, num_workers, batches)

    def recorded() -> float:
        with tempfile.TemporaryDirectory(dir=directory) as trace, tracing.record(trace):
            return attached()

    return in_turns(alone, recorded, turns)
