"""What these tests share: running the same thing in minidl and in torch, and comparing everything that shows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data._utils import worker as torch_worker

from tests.minidl.observing import comparable, emitted


def outcome(run: Callable[[], Any]) -> dict[str, Any]:
    """All that `run` shows from outside, started with torch's default generator freshly seeded."""
    torch.default_generator.manual_seed(7)  # torch.manual_seed notes its callers, in case there will be a device: 1 ms
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value, error = comparable(run()), (None, "")
        except Exception as raised:
            value, error = None, (type(raised), str(raised))
    return {
        "value": value,
        "error": error,
        "warnings": [
            (entry.category, str(entry.message), entry.filename)
            for entry in caught
            # Not those of torch's C++ code: some of them come only once in a process, for whatever is first.
            if "Triggered internally" not in str(entry.message)
        ],
        "next draw": torch.rand(()).item(),  # every draw was made, and none besides
    }


@pytest.fixture(scope="session")
def same() -> Callable[..., dict[str, Any]]:
    """same(run, ours, torchs): `run` shows the same with either; returned, for a look at what it was."""

    def compare(run: Callable[[Any], Any], ours: Any, theirs: Any) -> dict[str, Any]:
        from_minidl, from_torch = outcome(lambda: run(ours)), outcome(lambda: run(theirs))
        assert from_minidl == from_torch
        return from_torch

    return compare


@pytest.fixture
def in_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends this process passes for a worker: the state that torch's and minidl's workers set."""
    monkeypatch.setattr(torch_worker, "_worker_info", torch_worker.WorkerInfo(0, 1, 0, None))


@pytest.fixture
def recorded() -> Iterator[list[tuple[Any, ...]]]:
    with emitted() as found:
        yield found
