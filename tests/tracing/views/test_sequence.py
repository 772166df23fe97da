"""Every put and its got are one arrow between the right columns, in order: in the rows, and in each drawing of them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

import tracing
from minidl.events import Kind
from tests.tracing.loads import LOADS, Recorded
from tracing.trace.event_words import thread_name
from tracing.trace.state_after_event import label
from tracing.views import sequence
from tracing.views.sequence import Phase
from tracing.views.sequence.mermaid import escape
from tracing.views.sequence.rows import Arrow, Delivery, Note


def rows_of(found: sequence.Sequence, kind: type) -> list[Any]:
    """Its arrows, or its notes."""
    return [row for row in found.rows if isinstance(row, kind)]


def column_of(trace: tracing.Trace, position: int) -> str:
    """The thread that emitted an event."""
    return thread_name(trace.actors[trace.events["actor"][position]])


# ---- the rows


@pytest.mark.parametrize("name", [name for name in LOADS if name not in ("serial", "spawned")])
def test_every_message_is_one_arrow_from_its_sender_to_its_receiver(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    events = trace.events
    count = 0
    for number, each in enumerate(trace.loaders):
        if each.num_workers == 0:
            continue
        found = []
        for epoch in each.epochs:
            found += rows_of(sequence.select(trace, loader=each.loader, epoch=epoch, most=None), Arrow)
        of_iterator = (events["loader"] == each.loader) & np.isin(events["epoch"], each.epochs)
        puts = np.flatnonzero((events["kind"] == Kind.PUT) & of_iterator)
        gots = np.flatnonzero((events["kind"] == Kind.GOT) & of_iterator)
        assert sorted(arrow.begin for arrow in found) == puts.tolist()
        assert sorted(arrow.end for arrow in found if arrow.end >= 0) == gots.tolist(), number
        for arrow in found:
            put = events[arrow.begin]
            assert (arrow.label, arrow.source) == (label(int(put["task"])), column_of(trace, arrow.begin))
            if arrow.end >= 0:
                got = events[arrow.end]
                assert (got["queue"], got["worker"]) == (put["queue"], put["worker"]) and arrow.end > arrow.begin
                assert arrow.target == column_of(trace, arrow.end)
                assert got["task"] == put["task"] or arrow.delivery is Delivery.BROKEN
            assert (arrow.end < 0) == (arrow.delivery in (Delivery.LOST, Delivery.WAITING))
        count += len(found)
    assert count >= 4
    for whole in (sequence.select(trace, loader=each.loader, most=None) for each in trace.loaders if each.num_workers):
        positions = [row.begin for row in whole.rows]
        assert positions == sorted(set(positions)) and whole.left_out == ""
        assert {row.column for row in rows_of(whole, Note)} <= set(whole.columns)


def test_deaths_errors_and_the_shutdown_are_noted(recorded: Recorded) -> None:
    trace = recorded("dying")
    found = sequence.select(trace, most=None)
    kinds = Counter(note.kind for note in rows_of(found, Note))
    for kind in (Kind.WORKER_DIED, Kind.TASK_LOST, Kind.ERROR_RAISED, Kind.SHUTDOWN_BEGIN, Kind.WORKER_JOINED):
        assert kinds[kind] == (trace.events["kind"] == kind).sum() > 0
    raised = [note.words.text() for note in rows_of(found, Note) if note.kind == Kind.ERROR_RAISED]
    assert "killed by signal" in raised[0] and set(raised[1:]) == {"raises the same error again"}


# ---- a part


def lasts_until(row: Arrow | Note, last: int) -> int:
    return row.begin if isinstance(row, Note) else row.end if row.end >= 0 else last


def test_a_part_has_those_rows_of_the_whole_that_were_asked_for(recorded: Recorded) -> None:
    trace = recorded("pinned")
    kind, task, seconds = trace.events["kind"], trace.events["task"], (trace.events["time"] - trace.start) / 1e9
    whole, last, middle = sequence.select(trace, most=None).rows, len(trace) - 1, float(seconds[-1]) / 2
    first_yield, shutdown = (np.flatnonzero(kind == each)[0] for each in (Kind.YIELDED, Kind.SHUTDOWN_BEGIN))
    parts: list[tuple[dict[str, Any], Callable[[Arrow | Note], bool]]] = [
        ({"batches": (2, 4)}, lambda row: task[row.begin] in (2, 3)),
        ({"start": middle}, lambda row: seconds[lasts_until(row, last)] >= middle),
        ({"end": middle}, lambda row: seconds[row.begin] <= middle),
        ({"phase": Phase.START_UP}, lambda row: row.begin <= first_yield),
        ({"phase": Phase.SHUTDOWN}, lambda row: lasts_until(row, last) >= shutdown),
        ({"most": 20}, lambda row: row in whole[:20]),
    ]
    for selection, is_in_it in parts:
        found = sequence.select(trace, **{"most": None, **selection})
        assert found.rows == [row for row in whole if is_in_it(row)], selection
        assert 0 < len(found.rows) < len(whole) and ("--most 40" in found.left_out) == ("most" in selection)


# ---- text


@pytest.mark.parametrize("name", ["in_order", "pinned", "dying"])
def test_the_text_shows_every_arrow_in_order(recorded: Recorded, name: str) -> None:
    found = sequence.select(recorded(name), most=None)
    lines = str(sequence.as_text(recorded(name), width=110, most=None)).split("\n")
    head = next(line for line in lines if line.lstrip().startswith("ms "))
    at = {column: head.index(column) + 1 for column in found.columns}
    for arrow, line in zip(rows_of(found, Arrow), (line for line in lines if re.search("[├┤]", line)), strict=True):
        begin, end = at[arrow.source], at[arrow.target]
        assert line[begin] + line[end - 1] in ("├▸", "├…", "├✗") or line[begin] + line[end + 1] in ("┤◂", "┤…", "┤✗")
        assert re.search(r"\w+", line[min(begin, end) : max(begin, end)])[0] == str(arrow.label)
    shown = " ".join(" ".join(lines).split())
    assert all(" ".join(note.words.text().split()[:3]) in shown for note in rows_of(found, Note))


def test_the_text_fits_its_width_or_names_what_does_not(recorded: Recorded) -> None:
    for name, width in itertools.product(("in_order", "pinned", "persistent", "dying"), (40, 60, 120)):
        text = str(sequence.as_text(recorded(name), width=width, most=None))
        assert max(map(cell_len, text.split("\n"))) <= width
        if room := re.search(r"rows\):\s+--width\s+(\d+)", text):
            needed = int(room[1])
            assert needed > width and "No room" not in str(sequence.as_text(recorded(name), width=needed, most=None))
        else:
            assert width > 40


# ---- mermaid


@pytest.mark.parametrize("name", ["in_order", "pinned", "persistent", "serial", "failing", "dying"])
def test_mermaid_shows_every_arrow_and_note_in_order(recorded: Recorded, name: str) -> None:
    found = sequence.select(recorded(name), most=None)
    head, title, *lines = (line.strip() for line in sequence.as_mermaid(recorded(name), most=None).splitlines())
    assert head == "sequenceDiagram" and title == f"title {escape(found.title)}"
    ids = {column: f"P{number}" for number, column in enumerate(found.columns)}
    assert lines[: len(ids)] == [f"participant {id} as {column}" for column, id in ids.items()]
    for line, row in zip(lines[len(ids) :], found.rows, strict=True):
        if isinstance(row, Arrow):
            way = f"{ids[row.source]}{'->>' if row.taken else '--x'}{ids[row.target]}"
            assert line.startswith(f"{way}: {row.label if row.label != '?' else '#63;'} (") and line.endswith(")")
        else:
            assert line == f"note over {ids[row.column]}: {escape(row.words.text())}"


def test_mermaid_texts_are_escaped() -> None:
    """`;` would end the statement, `#` begin a character's code, `%%` a comment."""
    escaped = escape("a; b #35; <br>\n%% c & d")
    assert not set(re.sub(r"#\d+;", "", escaped)) & set(";#<>%&\n")
    assert re.sub(r"#(\d+);", lambda code: chr(int(code[1])), escaped) == "a; b #35; <br> %% c & d"
    assert len(escape("x" * 500)) == 120
