"""Each real load is recorded once, by the first test that asks for it."""

from __future__ import annotations

import functools

import pytest

import tracing
from tests.tracing.loads import Recorded, record


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """recorded("pinned") is the trace of `loads.pinned`."""
    return functools.cache(lambda name: record(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="session")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> tracing.Trace:
    """Nothing happened while it was recorded."""
    with tracing.record(tmp_path_factory.mktemp("nothing")) as recording:
        pass
    return tracing.load(recording.path, strict=True)
