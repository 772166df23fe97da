"""The least that a batch from two workers can cost: two bare processes, a pipe to each and one back, and each batch one
copy into memory that is mapped already. Two tasks are outstanding for each, as with the loader, and main has a batch
that must not be written over: three memories."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
from collections.abc import Iterator
from time import perf_counter

import numpy as np

from tests.benchmarks.loading import Cell, place_worker

WORKERS, OUTSTANDING = 2, 2
MESSAGE = bytes(128)  # about as long as a Task


def work(worker_id: int, tasks: int, results: int, memories: list[np.ndarray], sample: np.ndarray) -> None:
    """A process's whole life: a message, a batch made in the next memory, a message back."""
    place_worker(worker_id)
    made = 0
    while os.read(tasks, len(MESSAGE)):
        memories[made % len(memories)][:] = sample
        made += 1
        os.write(results, MESSAGE)


@contextlib.contextmanager
def two_processes(cell: Cell) -> Iterator[list[tuple[int, int]]]:
    """Of each: the end of a pipe that its results are read from, and that of one that its tasks are written to."""
    sample = cell.sample.numpy()
    fork, ends, processes = multiprocessing.get_context("fork"), [], []
    for worker_id in range(WORKERS):
        (tasks, to_worker), (from_worker, results) = os.pipe(), os.pipe()
        size = cell.batch_size * sample.nbytes
        mapped = [np.frombuffer(mmap.mmap(-1, size), sample.dtype) for _ in range(OUTSTANDING + 1)]
        memories = [memory.reshape(cell.batch_size, *sample.shape) for memory in mapped]
        process = fork.Process(target=work, args=(worker_id, tasks, results, memories, sample), daemon=True)
        process.start()
        os.close(tasks)
        os.close(results)
        ends.append((from_worker, to_worker))
        processes.append(process)
    try:
        yield ends
    finally:
        for process in processes:  # (the second has the first one's pipe open, too: its end would not be noticed)
            process.terminate()
            process.join()
        for end in [fd for pair in ends for fd in pair]:
            os.close(end)


def seconds_per_batch(cell: Cell, seconds: float) -> float:
    """The mean over as many batches as there are in `seconds`."""
    with two_processes(cell) as ends:
        for _ in range(OUTSTANDING):
            for _, to_worker in ends:
                os.write(to_worker, MESSAGE)
        batches, begin = 0, 0.0
        while batches < 10 * WORKERS or perf_counter() < begin + seconds:
            for from_worker, to_worker in ends:
                os.read(from_worker, len(MESSAGE))
                os.write(to_worker, MESSAGE)
            batches += WORKERS
            if batches == 4 * WORKERS:  # the memory is in use by now
                begin, skipped = perf_counter(), batches
        return (perf_counter() - begin) / (batches - skipped)
