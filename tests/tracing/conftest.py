"""Each real load is recorded once, by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tracing
from tests.tracing.loads import record


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tracing.Trace]:
    """recorded("pinned") is the trace of `loads.pinned`."""
    traces: dict[str, tracing.Trace] = {}

    def of(name: str) -> tracing.Trace:
        if name not in traces:
            traces[name] = record(name, tmp_path_factory.mktemp(name))
        return traces[name]

    return of
