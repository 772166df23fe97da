"""Every view on the second real load: a folder of PNG pictures, by minidl and by torch."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch.utils.data
from rich.console import Console

import minidl
import tracing
from minidl.events import Kind
from tests import images
from tracing.views import sequence, step_through
from tracing.views.export import jsonl
from tracing.views.live.live import watch

pytestmark = pytest.mark.timeout(60)

BATCHES = 12
PACKAGES = {"minidl": minidl, "torch.utils.data": torch.utils.data}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[tracing.Trace, list[float]]]:
    """trained("minidl") is the trace of a training run on pictures, and its losses."""
    done: dict[str, tuple[tracing.Trace, list[float]]] = {}

    def of(package: str) -> tuple[tracing.Trace, list[float]]:
        if package not in done:
            path = tmp_path_factory.mktemp("images") / "run.trace"
            with tracing.record(path):
                losses = images.train(attached(package), count=8 * BATCHES)
            done[package] = tracing.load(path), losses
        return done[package]

    return of


def attached(package: str) -> ModuleType:
    """The package, with torch's DataLoader attached as it is made."""
    module = ModuleType(package)
    of = PACKAGES[package].DataLoader
    module.DataLoader = of if package == "minidl" else lambda *args, **options: tracing.attach(of(*args, **options))  # type: ignore[attr-defined]
    return module


@pytest.mark.slow
def test_both_packages_train_on_the_same_pictures(
    trained: Callable[[str], tuple[tracing.Trace, list[float]]],
) -> None:
    assert trained("minidl")[1] == trained("torch.utils.data")[1]
    compared = tracing.compare(trained("torch.utils.data")[0], trained("minidl")[0]).loaders[0]
    assert compared.differ is None and compared.compared == BATCHES
    assert compared.configs["package"] == ("torch.utils.data", "minidl")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_view_shows_them(trained: Callable[[str], tuple[tracing.Trace, list[float]]], package: str) -> None:
    trace, _ = trained(package)
    assert tracing.check(trace) == [] and (trace.tasks["yielded"] >= 0).sum() == BATCHES
    sizes = trace.tasks["fetch_end"] - trace.tasks["fetch_begin"]
    assert sizes.max() > 1.2 * sizes.min()  # pictures differ, and so does decoding them
    for k in np.linspace(0, len(trace) - 1, 40, dtype=int).tolist():
        (loader,) = trace.state(k).loaders
        assert loader.yielded == (trace.events["kind"][: k + 1] == Kind.YIELDED).sum()
    assert "Verdict" in str(tracing.report(trace))
    lanes = {axes.get_gid() for axes in tracing.timeline(trace).axes}
    assert {"lanes", "worker_result_queue", "reorder buffer"} <= lanes
    out = io.StringIO()
    watch(trace.path, console=Console(file=out, width=100, height=30), once=True)
    assert "reorder buffer" in out.getvalue()
    assert str(sequence.as_text(trace, batches=(0, 2))).count("hands") == 2
    assert step_through.step(trace).html.startswith("<!doctype html>")
    lines = io.StringIO()
    jsonl.write(trace, lines)
    assert lines.getvalue().count("\n") == len(trace) + 1
