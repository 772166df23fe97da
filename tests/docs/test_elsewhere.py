"""What learners with a Mac get: all that `make elsewhere` tries works."""

from __future__ import annotations

import pytest

from docs.make import elsewhere


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_all_of_it_works_without_what_only_linux_has() -> None:
    assert elsewhere.main() == 0
