"""Programs of people who had not seen the loader, each run with torch's and with minidl's: the same comes out."""

from __future__ import annotations

import signal
from types import ModuleType
from typing import Any

import pytest
import torch.utils.data

import minidl
from minidl.world.real_memory import is_ready
from tests.minidl.dying import in_a_fork, keys, loader_of, wait_until, workers

pytestmark = pytest.mark.timeout(60)
BOTH = pytest.mark.parametrize("package", [torch.utils.data, minidl], ids=["torch", "minidl"])


@BOTH
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_size_that_is_changed_in_mid_epoch_counts_from_the_next_keys_on(
    package: ModuleType, num_workers: int
) -> None:
    loader = package.DataLoader(range(20), 2, num_workers=num_workers)
    iterator = iter(loader)
    sizes = [len(next(iterator))]
    loader.batch_sampler.batch_size = 5
    assert [*sizes, *map(len, iterator)] == ([2, 5, 5, 5, 3] if num_workers == 0 else [2, 2, 2, 2, 2, 5, 5])


def outlives_its_worker(transport: str) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as in many command-line tools: a write that nobody reads is the end
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    iterator: Any = iter(loader_of(keys(40), num_workers=1, prefetch_factor=4, transport=transport))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # nobody is to hear of the death before next() writes
    next(iterator)
    worker = workers()[0]
    wait_until(lambda: is_ready(iterator._worker_result_queue._channels[0].reader.fileno()))
    worker.kill()
    worker.join()
    with pytest.raises(RuntimeError, match="Killed"):
        while True:
            next(iterator)


@pytest.mark.parametrize("transport", ["slots", "torch"])
def test_a_dead_workers_pipe_does_not_take_main_with_it(transport: str) -> None:
    in_a_fork(lambda: outlives_its_worker(transport))
