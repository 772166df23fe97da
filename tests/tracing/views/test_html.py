"""`export --format html`: one page for a bug report, in a real browser, with nothing private in it unless asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tracing.forked import forked
from tests.tracing.views.browser import OpenPage
from tracing.__main__ import main
from tracing.recording.loader_text import PRODUCT
from tracing.views.export.redacted import called, without_paths

PROGRAM = """
import threading
import time
from torch.utils.data import DataLoader
from tests.samples import Samples

def complains():
    raise ValueError("Ada-37 has a fever, says /records/Ada.txt")

def trains():
    names = [f"Ada-{number}" for number in range(40)]
    list(DataLoader(Samples(64)))  # of more batches, and gone when the run ends
    time.sleep(1.1)
    loader = DataLoader(Samples(40, len, at={"Ada-37": complains}), sampler=names, batch_size=2, num_workers=2)
    try:
        for batch in loader:
            time.sleep(0.005)
    except ValueError:
        pass

if __name__ == "__main__":
    thread = threading.Thread(target=trains, name="reads /records/Ada-37")
    thread.start()
    thread.join()
"""
PRIVATE = "Ada-", "fever", "records", "My Clinic"
STEP = """
(async () => {
  const frame = document.querySelector("iframe");
  while (!frame.contentDocument?.querySelector("#sentence .words")?.textContent)
    await new Promise((go) => setTimeout(go, 10));
  const page = frame.contentDocument, words = () => page.getElementById("event").innerText, before = words();
  page.getElementById("on").click();
  return [document.querySelector("pre").innerText, words() !== before, document.querySelector("img").naturalWidth,
          document.documentElement.scrollWidth > document.documentElement.clientWidth, document.body.innerText];
})()
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home") / "My Clinic"
    home.mkdir()
    script = home / "train.py"
    script.write_text(PROGRAM)
    forked(home, "-m", "tracing", "run", "-o", str(home / "run"), str(script))
    return home / "run"


def exported(trace: Path, *more: str) -> str:
    output = trace.parent / "page.html"
    assert main(["export", str(trace), "--format", "html", "-o", str(output), *more]) == 0
    return output.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_shows_the_verdict_and_steps_without_anything_private(
    trace: Path, open_html: OpenPage, width: int
) -> None:
    html = exported(trace)
    assert len(html.encode()) < 2_000_000
    assert not [each for each in PRIVATE if each in html]
    assert str(trace.parents[1]) not in html
    verdict, stepped, drawn, wide, text = open_html(html, width=width).evaluate(STEP)
    assert "The run ended early" in verdict and "batch 18 on worker 0 raised" in verdict
    assert stepped and drawn and not wide
    assert all(word in text for word in ("train.py", "2.13", "num_workers", "ValueError(…)"))


def test_asked_for_its_content_the_page_has_keys_errors_and_paths(trace: Path) -> None:
    asked_for = exported(trace, "--content")
    assert all(each in asked_for for each in PRIVATE)


@pytest.mark.parametrize(
    ("what_stays", "text", "shown"),
    [
        (without_paths, "/home/ada/train.py", "train.py"),
        (without_paths, f"{PRODUCT}/ada/train.py", "train.py"),
        (without_paths, f"{PRODUCT}/minidl/worker.py", "…/site-packages/minidl/worker.py"),
        (without_paths, "/usr/lib/python3.11/threading.py", "…/lib/python3.11/threading.py"),
        (without_paths, r"C:\Users\ada\train.py:3", "train.py:3"),
        (without_paths, "vscode-remote:%2Fhome%2Fada%2Ftrain.py", "vscode-remote:train.py"),
        (called, "image = Image.open('/home/ada(1)/My Clinic/x.png')", "Image.open(…)"),
        (called, "/records/Ada(37).png''', reads())  # Ada's", "reads(…)"),  # the end of a string that began above
        (called, "total += 1  # ../Ada", ""),
    ],
)
def test_of_a_path_its_end_stays_and_of_a_line_of_code_what_it_calls(
    what_stays: Callable[[str], str], text: str, shown: str
) -> None:
    assert what_stays(text) == shown
