"""A prediction in JupyterLab, in a real browser: the buttons come, and a click unfolds what was revealed."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from notebooks.predict import CLOSED
from tests.notebooks.test_predict import ASK, REVEAL
from tests.tracing.views import browser
from tests.tracing.views.browser import Browser, Page

ROOT = Path(__file__).parents[2]
RUN = """(async () => {
  while (!window.jupyterapp) await new Promise(requestAnimationFrame);
  await jupyterapp.restored;
  const notebook = await jupyterapp.commands.execute("docmanager:open", {path: "ask.ipynb"});
  await notebook.context.ready;
  await notebook.sessionContext.ready;
  await jupyterapp.commands.execute("notebook:run-all-cells");
})()"""
THERE = """(async () => {
  while (!document.querySelector(%s)) await new Promise(requestAnimationFrame);
})()"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab that serves a notebook with a question and what it reveals."""
    cells = [nbformat.v4.new_code_cell(source) for source in (ASK.format(mine=""), REVEAL)]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}  # or Lab asks
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), tmp_path / "ask.ipynb")
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    environment = {**os.environ, **own, "IPYTHONDIR": str(tmp_path / "ipython"), "PYTHONPATH": str(ROOT)}
    token = secrets.token_hex()
    options = ["--no-browser", "--allow-root", "--expose-app-in-browser", f"--ServerApp.root_dir={tmp_path}"]
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options, f"--IdentityProvider.token={token}"],
        env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stderr is not None
        address = next(found[0] for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+/lab", line)))
        yield f"{address}?token={token}"
    finally:
        server.terminate()  # it ends its kernels
        server.communicate()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    program = browser.find()
    if program is None:
        pytest.skip("no chromium or chrome on this machine")
    with Browser(program, tmp_path) as chromium:
        yield chromium.page


def test_a_click_unfolds_what_was_revealed(lab: str, page: Page):
    page.open(lab)
    page.evaluate(RUN)
    page.evaluate(THERE % json.dumps(".widget-toggle-button + .widget-toggle-button"))
    assert page.evaluate("document.querySelector('details').outerHTML").startswith(CLOSED)
    page.click(".widget-toggle-button + .widget-toggle-button")
    page.evaluate(THERE % json.dumps("details[open]"))
    shown = page.evaluate("document.querySelector('details').innerText")
    assert "You predicted: four. What came: four, as you said." in shown
    page.evaluate(THERE % json.dumps(".widget-toggle-button:disabled"))  # the prediction stands
