"""What is read back with `json` is what was in the trace; docs/exports.md names every field of it."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracing
from minidl.events import Kind, Queue
from tests.tracing.loads import LOADS
from tests.tracing.traces import begin, copy
from tracing.views.export import jsonl

pytestmark = pytest.mark.timeout(60)
Recorded = Callable[[str], tracing.Trace]
PAGE = Path(__file__).parents[3] / "docs" / "exports.md"


def written(trace: tracing.Trace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(header, events), read back."""
    stream = io.StringIO()
    jsonl.write(trace, stream)
    header, *events = map(json.loads, stream.getvalue().splitlines())
    return header, events


def same(trace: tracing.Trace, events: list[dict[str, Any]]) -> bool:
    """Whether these are exactly the trace's events: every field, the texts included."""
    rebuilt = np.zeros(len(events), trace.events.dtype)
    for name in set(trace.events.dtype.names) - {"text", "kind", "queue"}:
        rebuilt[name] = [event[name] for event in events]
    rebuilt["kind"] = [Kind[event["kind"]] for event in events]
    rebuilt["queue"] = [Queue[event["queue"] or "NONE"] for event in events]
    rebuilt["text"] = trace.events["text"]  # a reference into the trace's own files: compared by what it refers to
    texts = [trace.text(k) for k in range(len(trace))]
    numbered = [event["k"] for event in events] == list(range(len(trace)))
    return numbered and np.array_equal(rebuilt, trace.events) and texts == [event["text"] for event in events]


@pytest.mark.parametrize("name", [name for name in LOADS if name != "spawned"])
def test_what_is_read_back_is_the_trace(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    header, events = written(trace)
    assert same(trace, events)
    assert any(event["text"] is not None for event in events)
    assert (header["schema"], header["version"]) == (jsonl.SCHEMA, jsonl.VERSION)
    assert (header["events"], header["start"]) == (len(trace), trace.start)
    assert header["package"] == "minidl"
    for event in events:
        actor = header["actors"][event["actor"]]
        assert event["who"].startswith(actor["role"]) and (actor["worker"] < 0 or actor["worker"] == event["worker"] or
                                                           event["loader"] != actor["loader"])  # fmt: skip
        assert event["task"] >= -1 or str(event["task"]) in header["messages"]


def test_a_trace_of_several_chunks_is_read_back_whole(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "CHUNK", 7)
    assert same(recorded("pinned"), written(recorded("pinned"))[1])


def test_a_cut_or_empty_trace_is_written_as_it_is(recorded: Recorded, tmp_path: Path) -> None:
    whole = recorded("dying")
    cut = copy(whole, whole.events[: len(whole) // 2], tmp_path / "cut.trace")
    header, events = written(cut)
    assert same(cut, events) and header["events"] == len(whole) // 2
    header, events = written(tracing.load(begin(tmp_path / "empty.trace")))
    assert (header["events"], header["package"], events) == (0, None, [])


def test_a_file_a_compressed_file_and_a_stream_hold_the_same(recorded: Recorded, tmp_path: Path) -> None:
    trace, stream = recorded("pinned"), io.StringIO()
    jsonl.write(trace, stream)
    jsonl.write(trace, tmp_path / "events.jsonl")
    jsonl.write(trace, str(tmp_path / "events.jsonl.gz"))
    assert (tmp_path / "events.jsonl").read_text() == stream.getvalue()  # and the stream is still open
    assert gzip.decompress((tmp_path / "events.jsonl.gz").read_bytes()).decode() == stream.getvalue()


def documented(heading: str) -> list[tuple[str, str]]:
    """The rows of the table under this heading of the page."""
    section = PAGE.read_text().split(f"### {heading}\n")[1].split("\n#")[0]
    return re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)


def test_the_page_names_every_field_that_is_written(recorded: Recorded) -> None:
    header, events = written(recorded("pinned"))
    assert [name for name, _ in documented("An event")] == list(jsonl.FIELDS)
    assert all(list(event) == list(jsonl.FIELDS) for event in events)
    assert [name for name, _ in documented("The header")] == list(header)
    assert f"`{jsonl.SCHEMA}`, version {jsonl.VERSION}" in PAGE.read_text()


def test_the_page_names_every_field_of_threads_and_iterators(recorded: Recorded) -> None:
    header, _ = written(recorded("pinned"))
    words = dict(documented("The header"))
    for name in ("actors", "loaders"):
        assert all(f"`{field}`" in words[name] for field in header[name][0])
    [site] = header["sources"]["FETCH_BEGIN"]
    assert set(site) <= set(re.findall(r"`(\w+)`", words["sources"]))
