"""Every put and its got are one arrow between the right columns, in order: in the rows, and in each drawing of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

import tracing
from minidl.events import Kind
from tests.tracing.loads import LOADS
from tests.tracing.traces import copy, steady
from tracing.trace.event_words import thread_name
from tracing.trace.state_after_event import label
from tracing.views import sequence
from tracing.views.sequence import Phase, rows
from tracing.views.sequence.mermaid import escape
from tracing.views.sequence.rows import Arrow, Delivery, Note

pytestmark = pytest.mark.timeout(60)
Recorded = Callable[[str], tracing.Trace]
PARALLEL = [name for name in LOADS if name not in ("serial", "spawned")]


def arrows_of(found: sequence.Sequence) -> list[Arrow]:
    return [row for row in found.rows if isinstance(row, Arrow)]


def notes_of(found: sequence.Sequence) -> list[Note]:
    return [row for row in found.rows if isinstance(row, Note)]


def column_of(trace: tracing.Trace, position: int) -> str:
    """The thread that emitted an event."""
    return thread_name(trace.actors[trace.events["actor"][position]])


# ---- the rows


@pytest.mark.parametrize("name", PARALLEL)
def test_every_message_is_one_arrow_from_its_sender_to_its_receiver(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    events = trace.events
    count = 0
    for number, each in enumerate(trace.loaders):
        if each.num_workers == 0:
            continue
        found = []
        for epoch in each.epochs:
            found += arrows_of(sequence.select(trace, loader=each.loader, epoch=epoch, most=None))
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
        assert {row.column for row in notes_of(whole)} <= set(whole.columns)


def test_an_arrow_says_in_which_slot_its_batch_lies(recorded: Recorded) -> None:
    trace = recorded("slots")
    arrows = arrows_of(sequence.select(trace, epoch=0, batches=(0, 20), most=None))
    of_epoch = trace.tasks[(trace.tasks["loader"] == trace.loaders[0].loader) & (trace.tasks["epoch"] == 0)]
    places = {arrow.label: arrow.where for arrow in arrows if arrow.target == "main"}
    lies_in = [f"slot {slot}" if slot >= 0 else "memory of its own" for slot in of_epoch["slot"].tolist()]
    assert [places[task] for task in range(20)] == [f"worker_result_queue, {where}" for where in lies_in[:20]]
    assert len(set(lies_in[:20])) == 5
    assert {arrow.where for arrow in arrows if arrow.source == "main"} == {"index_queue"}


def test_deaths_errors_and_the_shutdown_are_noted(recorded: Recorded) -> None:
    trace = recorded("dying")
    found = sequence.select(trace, most=None)
    kinds = Counter(note.kind for note in notes_of(found))
    for kind in (Kind.WORKER_DIED, Kind.TASK_LOST, Kind.ERROR_RAISED, Kind.SHUTDOWN_BEGIN, Kind.WORKER_JOINED):
        assert kinds[kind] == (trace.events["kind"] == kind).sum() > 0
    [death] = [note for note in notes_of(found) if note.kind == Kind.WORKER_DIED]
    assert (death.worker, death.words.text()) == (1, "notices that worker 1 died (SIGKILL)")
    raised = [note.words.text() for note in notes_of(found) if note.kind == Kind.ERROR_RAISED]
    assert "killed by signal" in raised[0] and set(raised[1:]) == {"raises the same error again"}
    assert {arrow.delivery for arrow in arrows_of(found)} >= {Delivery.TAKEN, Delivery.LOST}


def test_a_message_in_a_queue_when_the_trace_ends_is_still_there(recorded: Recorded, tmp_path: Path) -> None:
    whole = recorded("pinned")
    for length in range(20, len(whole), 15):
        trace = copy(whole, whole.events[:length], tmp_path / f"{length}.trace")
        found = sequence.select(trace, most=None)
        [state] = trace.state().loaders
        queues = [*state.index_queues, *state.result_queues, state.data_queue]
        if state.alive:
            waiting = [arrow.label for arrow in arrows_of(found) if arrow.delivery is Delivery.WAITING]
            assert Counter(waiting) == Counter(message for queue in queues for message in queue.messages)
        assert str(sequence.as_text(trace)) and sequence.as_mermaid(trace)


# ---- a part


@pytest.mark.parametrize(
    ("name", "selection"),
    [
        ("pinned", {"batches": (2, 4)}), ("persistent", {"epoch": 1}), ("persistent", {"epoch": 2, "batches": (0, 3)}),
        ("in_order", {"end": 0.5}), ("in_order", {"start": 0.5}), ("pinned", {"phase": Phase.START_UP}),
        ("pinned", {"phase": Phase.SHUTDOWN}), ("pinned", {"most": 20}),
    ],
)  # fmt: skip
def test_a_part_has_those_rows_of_the_whole_that_were_asked_for(
    recorded: Recorded, name: str, selection: dict[str, Any]
) -> None:
    trace = recorded(name)
    kind, task, epoch = (trace.events[name] for name in ("kind", "task", "epoch"))
    seconds = (trace.events["time"] - trace.start) / 1e9
    middle = {each: share * float(seconds[-1]) for each, share in selection.items() if each in ("start", "end")}
    found = sequence.select(trace, **{"most": None, **selection, **middle}).rows
    whole = sequence.select(trace, most=None).rows

    def lasts_until(row: Arrow | Note) -> int:
        return (row.end if row.end >= 0 else len(trace) - 1) if isinstance(row, Arrow) else row.begin

    # What each argument asks for, given its value.
    asks: dict[str, Callable[[Any, Arrow | Note], bool]] = {
        "batches": lambda batches, row: task[row.begin] in range(*batches),
        "epoch": lambda number, row: epoch[row.begin] == number,
        "start": lambda _, row: seconds[lasts_until(row)] >= middle["start"],
        "end": lambda _, row: seconds[row.begin] <= middle["end"],
        "phase": lambda phase, row: (
            row.begin <= np.flatnonzero(kind == Kind.YIELDED)[0]
            if phase is Phase.START_UP
            else lasts_until(row) >= np.flatnonzero(kind == Kind.SHUTDOWN_BEGIN)[0]
        ),
        "most": lambda most, row: row in whole[:most],
    }
    expected = [row for row in whole if all(asks[name](value, row) for name, value in selection.items())]
    assert [row.begin for row in found] == [row.begin for row in expected]
    assert 0 < len(found) < len(whole)


def test_of_a_long_trace_only_what_is_shown_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is left out is named, once."""
    steady(tmp_path / "long", 3000, workers=2)
    trace = tracing.load(tmp_path / "long")
    every = rows.select(trace, most=None)
    labelled: list[int] = []
    monkeypatch.setattr(rows, "label", lambda task: labelled.append(task) or label(task))
    assert rows.select(trace, most=20).rows == every.rows[:20]
    assert len(labelled) < 500 < len(every.rows)
    for drawn in (str(sequence.as_text(trace)).replace("\n", " "), sequence.as_mermaid(trace)):
        assert drawn.count("Left out: all from ") == drawn.count("--most 400") == 1
    assert every.left_out == ""
    labelled.clear()
    part = rows.select(trace, batches=(2500, 2504)).rows
    assert len(labelled) < 100
    assert part == [row for row in every.rows if 2500 <= trace.events["task"][row.begin] < 2504]


# ---- text


def read_text(drawn: str, columns: list[str]) -> list[tuple[str, str, str]]:
    """(from, to, label) of each arrow, read off the lines."""
    lines = drawn.split("\n")
    head = next(line for line in lines if line.lstrip().startswith("ms "))
    at = {head.index(name) + 1: name for name in columns}
    found = []
    for line in lines:
        tail = re.search(r"[├┤]", line)
        if tail:
            to = re.search(r"▸(?=│)|(?<=│)◂|✗(?=│)|(?<=│)✗|…(?=│)|(?<=│)…", line)
            target = to.end() if tail.group() == "├" else to.start() - 1
            between = line[min(tail.start(), target) : max(tail.start(), target)]
            found.append((at[tail.start()], at[target], re.search(r"\w+", between).group()))
    return found


@pytest.mark.parametrize("name", ["in_order", "pinned", "dying"])
def test_the_text_shows_every_arrow_in_order(recorded: Recorded, name: str) -> None:
    found = sequence.select(recorded(name), most=None)
    drawn = str(sequence.as_text(recorded(name), width=110, most=None))
    expected = [(arrow.source, arrow.target, str(arrow.label)) for arrow in arrows_of(found)]
    assert read_text(drawn, found.columns) == expected
    shown = " ".join(drawn.split())
    for note in notes_of(found):
        assert " ".join(note.words.text().split()[:3]) in shown


@pytest.mark.parametrize("width", [40, 60, 120])
def test_the_text_fits_its_width_or_names_what_does_not(recorded: Recorded, width: int) -> None:
    for name in ("in_order", "pinned", "persistent", "dying"):
        text = sequence.as_text(recorded(name), width=width, most=None)
        lines = str(text).split("\n")
        assert max(map(cell_len, lines)) <= width
        head = next(line for line in lines if line.lstrip().startswith("ms "))
        found = sequence.select(recorded(name))
        hidden = len(found.columns) - len(head.replace("pin thread", "pin").replace("worker ", "w").split()) + 1
        assert ("No room for" in str(text)) == (hidden > 0)
        if hidden:
            needed = int(re.search(r"rows\):\s+--width\s+(\d+)", str(text)).group(1))
            assert "No room" not in str(sequence.as_text(recorded(name), width=needed, most=None))


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
