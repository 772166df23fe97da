"""What these tests share: mains that are made to end, and no shared memory that is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.minidl.dying import no_names_left
from tests.minidl.mains import Mains


@pytest.fixture(scope="module")
def mains() -> Iterator[Mains]:
    mains = Mains()
    yield mains
    mains.forker.communicate()


@pytest.fixture
def no_names() -> Iterator[None]:
    with no_names_left():
        yield
