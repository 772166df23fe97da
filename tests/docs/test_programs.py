"""What `make elsewhere` and `make versions` try holds here, with the torch that is pinned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from docs.make import claims, elsewhere

FULL = claims.torchs_batches, claims.torchs_loader  # with workers that import torch


@pytest.mark.parametrize(
    "claim", [pytest.param(each, marks=[pytest.mark.full] * (each in FULL)) for each in claims.CLAIMS.values()]
)
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")
def test_claims(claim: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(elsewhere.ROOT))
    claim()


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_all_of_it_works_without_what_only_linux_has() -> None:
    """What learners with a Mac get."""
    assert elsewhere.main() == 0
