"""Every view on the second real load: a folder of PNG pictures, by minidl and by torch."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch.utils.data
from rich.console import Console

import minidl
import tracing
from minidl.events import Kind
from tests import images
from tracing.views import sequence
from tracing.views.export import jsonl
from tracing.views.live.live import watch

BATCHES = 12


def attached(*args: Any, **options: Any) -> Any:
    return tracing.attach(torch.utils.data.DataLoader(*args, **options))


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_both_packages_train_on_the_same_pictures_and_every_view_shows_them(tmp_path: Path) -> None:
    traces, losses = [], []
    for package in (SimpleNamespace(__name__="torch.utils.data", DataLoader=attached), minidl):
        with tracing.record(tmp_path / package.__name__):
            losses.append(images.train(package, count=8 * BATCHES))
        traces.append(tracing.load(tmp_path / package.__name__))
        every_view(traces[-1])
    assert losses[0] == losses[1]
    compared = tracing.compare(*traces).loaders[0]
    assert compared.differ is None and compared.compared == BATCHES
    assert compared.configs["package"] == ("torch.utils.data", "minidl")


def every_view(trace: tracing.Trace) -> None:
    assert tracing.check(trace) == [] and (trace.tasks["yielded"] >= 0).sum() == BATCHES
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
    assert tracing.step(trace).html.startswith("<!doctype html>")
    jsonl.write(trace, trace.path / "events.jsonl")
    assert (trace.path / "events.jsonl").read_text().count("\n") == len(trace) + 1
