"""What is read back with `json` is what was in the trace; docs/exports.md names every field of it."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracing
from minidl.events import Kind, Queue
from tests.tracing.loads import LOADS, Recorded
from tests.tracing.traces import begin
from tracing.views.export import jsonl

PAGE = Path(__file__).parents[3] / "docs" / "exports.md"


def written(trace: tracing.Trace, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(header, events), read back: every field of every event is the trace's, texts included."""
    jsonl.write(trace, folder / "events.jsonl")
    header, *events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    rebuilt = np.zeros(len(events), trace.events.dtype)
    for name in set(trace.events.dtype.names) - {"text", "kind", "queue"}:
        rebuilt[name] = [event[name] for event in events]
    rebuilt["kind"] = [Kind[event["kind"]] for event in events]
    rebuilt["queue"] = [Queue[event["queue"] or "NONE"] for event in events]
    rebuilt["text"] = trace.events["text"]  # a reference into the trace's own files: compared by what it refers to
    assert np.array_equal(rebuilt, trace.events)
    assert [event["text"] for event in events] == [trace.text(k) for k in range(len(trace))]
    assert [event["k"] for event in events] == list(range(len(trace)))
    assert (header["schema"], header["version"]) == (jsonl.SCHEMA, jsonl.VERSION)
    assert (header["events"], header["start"]) == (len(trace), trace.start)
    return header, events


@pytest.mark.parametrize("name", [name for name in LOADS if name != "spawned"])
def test_what_is_read_back_is_the_trace(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(jsonl, "CHUNK", 50)
    header, events = written(recorded(name), tmp_path)
    assert header["package"] == "minidl" and any(event["text"] is not None for event in events)
    for event in events:
        actor = header["actors"][event["actor"]]
        assert event["who"].startswith(actor["role"])
        assert event["task"] >= -1 or str(event["task"]) in header["messages"]
    jsonl.write(recorded(name), str(tmp_path / "events.jsonl.gz"))
    assert gzip.decompress((tmp_path / "events.jsonl.gz").read_bytes()) == (tmp_path / "events.jsonl").read_bytes()


def test_an_empty_trace_is_written_as_it_is(tmp_path: Path) -> None:
    header, events = written(tracing.load(begin(tmp_path / "empty.trace")), tmp_path)
    assert (header["package"], events) == (None, [])


def documented(heading: str) -> dict[str, str]:
    """The rows of the table under this heading of the page."""
    section = PAGE.read_text().split(f"### {heading}\n")[1].split("\n#")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))


def test_the_page_names_every_field_that_is_written(recorded: Recorded, tmp_path: Path) -> None:
    header, events = written(recorded("pinned"), tmp_path)
    assert list(documented("An event")) == list(jsonl.FIELDS)
    assert all(list(event) == list(jsonl.FIELDS) for event in events)
    words = documented("The header")
    assert list(words) == list(header)
    assert f"`{jsonl.SCHEMA}`, version {jsonl.VERSION}" in PAGE.read_text()
    for name in ("actors", "loaders"):
        assert all(f"`{field}`" in words[name] for field in header[name][0])
    [site] = header["sources"]["FETCH_BEGIN"]
    assert set(site) <= set(re.findall(r"`(\w+)`", words["sources"]))
