"""The browser, for the tests of the pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tracing.views import browser
from tests.tracing.views.browser import Browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = browser.find()
    if program is None:
        pytest.skip("no chromium or chrome on this machine")
    with Browser(program, tmp_path_factory.mktemp("chromium")) as running:
        yield running
