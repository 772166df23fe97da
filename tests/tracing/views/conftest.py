"""The browser, for the tests of the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tracing.views import browser
from tests.tracing.views.browser import Browser, OpenPage, Page


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = browser.find()
    if program is None:
        pytest.skip("no chromium or chrome on this machine")
    with Browser(program, tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def open_html(chromium: Browser, tmp_path: Path) -> Iterator[OpenPage]:
    """Opens HTML as a file. At the end the page has logged no error, and has requested nothing but its file."""
    opened: list[str] = []
    chromium.page.forget()

    def open_(html: str, link: str = "", **looks: Any) -> Page:
        path = tmp_path / f"{len(opened)}.html"
        path.write_text(html, encoding="utf-8")
        opened.append(path.as_uri())
        chromium.page.open(opened[-1] + link, **looks)
        return chromium.page

    yield open_
    assert chromium.page.complaints == []
    requested = [url.partition("#")[0] for url in chromium.page.requests]
    # A frame's page is about:srcdoc, and a picture in the page is a request, too.
    assert [url for url in requested if not url.startswith(("about:", "data:"))] == opened
