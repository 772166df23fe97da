"""The site as `make site` builds it. Every page is opened in a browser, on a phone and on a desk, in light and dark:
nothing fails, nothing scrolls sideways, nothing comes from another host, and axe-core finds nothing serious."""

from __future__ import annotations

import functools
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import tracing
from minidl import public
from tests.tracing.views.browser import Browser, Page, find

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
PHONE, DESK = 375, 1280
LOOKS = [(PHONE, "light"), (DESK, "dark"), (PHONE, "dark"), (DESK, "light")]
OURS = ("docs/demo.html", "docs/inside-the-dataloader.html", "docs/playground.html", "index.html")
# All is shown at once: what is folded, and the scenes of the story that are not yet in sight. Of a long source the
# beginning will do: each of its thousands of pieces would be looked at.
UNFOLD = """
document.querySelectorAll("details").forEach((each) => { each.open = true; });
dispatchEvent(new Event("beforeprint"));
document.querySelectorAll("pre").forEach((each) => [...each.childNodes].slice(500).forEach((node) => node.remove()));
"""
TOO_WIDE = """
[document.scrollingElement, ...document.querySelectorAll(".content")]
  .some((each) => each.scrollWidth > each.clientWidth)
"""
AXE = """
axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => `${each.id}: ${each.nodes.map((node) => node.html.slice(0, 200)).slice(0, 3).join(" | ")}`))
"""

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(find() is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the site is served."""
    subprocess.run(["make", "site"], cwd=ROOT, check=True)
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(SimpleHTTPRequestHandler, directory=str(SITE))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """With axe-core in every frame."""
    (axe,) = ROOT.glob(".venv-site/lib/python*/site-packages/axe_core_python/axe.min.js")
    with Browser(str(find()), tmp_path_factory.mktemp("browser")) as browser:
        browser.page.call("Page.addScriptToEvaluateOnNewDocument", source=axe.read_text(encoding="utf-8"))
        yield browser.page


def test_every_page_can_be_read(address: str, page: Page):
    paths = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
    assert len(paths) > 60
    found = [f"{path}: {what}" for path in paths for what in complaints(page, address, path)]
    assert not found, "\n".join(found)


def complaints(page: Page, address: str, path: str) -> Iterator[str]:
    page.forget()
    page.open(address + path, PHONE)
    page.evaluate(UNFOLD)
    # The theme's own looks do not depend on both: the first two have each width and each scheme.
    for width, scheme in LOOKS if path in OURS else LOOKS[:2]:
        page.resize(width, 800)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        if page.evaluate(TOO_WIDE):
            yield f"scrolls sideways at {width} px"
        yield from (f"{width} px, {scheme}: {what}" for what in faults(page))
    yield from page.complaints
    yield from (f"loads {url}" for url in page.requests if not re.match(rf"{address}|data:|about:|blob:", url))


def faults(page: Page) -> list[str]:
    """What axe-core finds. It may take longer than other commands, where a page has a dozen frames."""
    options = {"awaitPromise": True, "returnByValue": True}
    answer = page.browser.call("Runtime.evaluate", page.session, patience=120, expression=AXE, **options)
    return answer["result"]["value"]


def test_the_search_finds_a_page(address: str, page: Page):
    page.open(f"{address}search.html?q=reorder+buffer")
    page.wait_until("document.querySelector('.search-summary')?.textContent.includes('finished')")
    assert "Glossary" in page.evaluate("document.querySelector('ul.search').textContent")


def test_every_public_name_is_in_the_reference(address: str):
    there = {*re.findall(r'id="([\w.]+)"', "".join(path.read_text() for path in (SITE / "api").glob("*.html")))}
    names = {f"minidl.{name}" for name in [*public.__all__, "StatefulDataLoader"] if name != "_DatasetKind"}
    assert names | {f"tracing.{name}" for name in tracing.__all__} <= there
