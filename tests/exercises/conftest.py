"""For tests of answers that go on and on."""

from __future__ import annotations

import pytest

from notebooks.exercises import family, grading


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an answer is soon stopped: whoever waits for it is in this process."""
    for module in (family, grading):
        monkeypatch.setattr(module, "COMPUTES", 1.0)
        monkeypatch.setattr(module, "WAITS", 1.0)
