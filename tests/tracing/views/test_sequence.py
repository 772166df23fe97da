"""Every put and its got are one arrow between the right columns, in order: in the rows, and in each drawing of them."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

import tracing
from minidl.events import Kind
from tests.tracing.loads import LOADS
from tests.tracing.traces import begin, copy, steady
from tracing.trace.event_words import thread_name
from tracing.trace.state import Label
from tracing.trace.state_after_event import label
from tracing.views import sequence
from tracing.views.sequence import Phase, rows
from tracing.views.sequence.mermaid import escape
from tracing.views.sequence.rows import Arrow, Delivery, Note

pytestmark = pytest.mark.timeout(60)
Recorded = Callable[[str], tracing.Trace]
PARALLEL = [name for name in LOADS if name not in ("serial", "spawned")]
ENDS = {"├": "┤", "┤": "├"}


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


def test_an_arrow_tells_in_which_slot_its_batch_lies(recorded: Recorded) -> None:
    trace = recorded("slots")
    found = sequence.select(trace, epoch=0, batches=(0, 20), most=None)
    number = trace.loaders[0].loader
    rows = {row["task"]: row for row in trace.tasks if row["loader"] == number and row["epoch"] == 0}
    places = {arrow.label: arrow.where for arrow in arrows_of(found) if arrow.target == "main"}
    for task, where in places.items():
        slot = rows[task]["slot"]
        assert where == "worker_result_queue, " + (f"slot {slot}" if slot >= 0 else "memory of its own")
    assert len(places) == 20 and len(set(places.values())) == 5
    assert {arrow.where for arrow in arrows_of(found) if arrow.source == "main"} == {"index_queue"}


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


def begins(found: sequence.Sequence) -> list[int]:
    return [row.begin for row in found.rows]


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
    events, kinds = trace.events, trace.events["kind"]
    chosen = {each: value * trace.duration / 1e9 for each, value in selection.items() if each in ("start", "end")}
    found = sequence.select(trace, **{"most": None, **selection, **chosen})
    whole = sequence.select(trace, most=None)

    def wanted(row: Arrow | Note) -> bool:
        end = max(row.begin, row.end if isinstance(row, Arrow) else -1)
        end = len(trace) if isinstance(row, Arrow) and row.end < 0 else end
        first, last = selection.get("batches", (-(10**9), 10**9))
        first_yield = np.flatnonzero(kinds == Kind.YIELDED)[0]
        return (
            first <= events["task"][row.begin] < last
            and events["epoch"][row.begin] == selection.get("epoch", events["epoch"][row.begin])
            and ("end" not in selection or found.time(row.begin) <= chosen["end"] * 1e9)
            and ("start" not in selection or end == len(trace) or found.time(end) >= chosen["start"] * 1e9)
            and (selection.get("phase") is not Phase.START_UP or row.begin <= first_yield)
            and (selection.get("phase") is not Phase.SHUTDOWN or end >= np.flatnonzero(kinds == Kind.SHUTDOWN_BEGIN)[0])
        )

    expected = [row.begin for row in whole.rows if wanted(row)][: selection.get("most")]
    assert begins(found) == expected and 0 < len(expected) < len(whole.rows)


def test_of_a_long_trace_only_what_is_shown_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is left out is named, once."""
    steady(tmp_path / "long", 3000, workers=2)
    trace = tracing.load(tmp_path / "long")
    every = rows.select(trace, most=None)
    labelled: list[int] = []

    def counting(task: int) -> Label:
        labelled.append(task)
        return label(task)

    monkeypatch.setattr(rows, "label", counting)
    some = rows.select(trace, most=20)
    assert some.rows == every.rows[:20] and len(labelled) < 500 < len(every.rows)
    for drawn in (str(sequence.as_text(trace)).replace("\n", " "), sequence.as_mermaid(trace)):
        assert drawn.count("Left out: all from ") == drawn.count("--most 400") == 1
    assert every.left_out == ""
    labelled.clear()
    part = rows.select(trace, batches=(2500, 2504)).rows
    assert len(labelled) < 100
    assert part == [row for row in every.rows if 2500 <= trace.events["task"][row.begin] < 2504]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loader": 77}, "no loader 77"), ({"epoch": 9}, "no epoch 9"), ({"start": 1e6}, "nothing"),
        ({"batches": (50, 60)}, "no batches 50 to 59 of epoch 0"), ({"most": 0}, "at most 0 rows"),
        ({"phase": Phase.SHUTDOWN}, "does not start to shut down"), ({"width": 39}, "40 columns"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_one_clear_line(recorded: Recorded, options: dict, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        sequence.as_text(recorded("serial" if "phase" in options else "pinned"), **options)
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="no events"):
        sequence.as_text(tracing.load(begin(tmp_path / "empty.trace")))


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


@pytest.mark.parametrize("name", ["in_order", "pinned", "stream", "dying", "failing"])
def test_the_text_shows_every_arrow_in_order(recorded: Recorded, name: str) -> None:
    found = sequence.select(recorded(name), most=None)
    drawn = str(sequence.as_text(recorded(name), width=110, most=None))
    expected = [(arrow.source, arrow.target, str(arrow.label)) for arrow in arrows_of(found)]
    assert read_text(drawn, found.columns) == expected
    shown = " ".join(drawn.split())
    for note in notes_of(found):
        assert " ".join(note.words.text().split()[:3]) in shown


@pytest.mark.parametrize("width", [40, 42, 60, 80, 120, 200])
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


def test_a_terminal_with_colours_gets_them_and_an_ascii_one_gets_ascii(recorded: Recorded) -> None:
    text = sequence.as_text(recorded("dying"), width=100)
    colours = io.StringIO()
    Console(file=colours, force_terminal=True, width=100, color_system="truecolor").print(text)
    assert "\x1b[" in colours.getvalue() and "├" in colours.getvalue()
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=plain, width=100).print(text)
    plain.seek(0)
    assert "STOP" in plain.read()  # and no character was printed that ASCII lacks


# ---- mermaid

STATEMENT = re.compile(
    r"""(?: title\ .+
        | participant\ (?P<id>P\d+)\ as\ (?P<name>.+)
        | (?P<source>P\d+)(?P<line>->>|--x)(?P<target>P\d+):\ (?P<label>\w+|\#63;)\ \(.+\)
        | note\ over\ (?P<over>P\d+):\ (?P<note>.+)
    )""",
    re.VERBOSE,
)


@pytest.mark.parametrize("name", LOADS)
def test_mermaid_shows_every_arrow_and_note_in_order(recorded: Recorded, name: str) -> None:
    found = sequence.select(recorded(name), most=None)
    head, *lines = sequence.as_mermaid(recorded(name), most=None).splitlines()
    statements = [STATEMENT.fullmatch(line.strip()) for line in lines]
    assert head == "sequenceDiagram" and all(statements), lines
    names = {each["id"]: each["name"] for each in statements if each["id"]}
    assert list(names.values()) == found.columns
    rows = [each for each in statements if each["source"] or each["over"]]
    assert len(rows) == len(found.rows)
    for each, row in zip(rows, found.rows, strict=True):
        if isinstance(row, Arrow):
            assert (names[each["source"]], names[each["target"]]) == (row.source, row.target)
            assert (each["label"], each["line"] == "->>") == (str(row.label), row.taken)
        else:
            assert names[each["over"]] == row.column and each["note"] == escape(row.words.text())


def test_mermaid_texts_are_escaped() -> None:
    """`;` would end the statement, `#` begin a character's code, `%%` a comment."""
    escaped = escape("a; b #35; <br>\n%% c & d")
    assert not set(re.sub(r"#\d+;", "", escaped)) & set(";#<>%&\n")
    assert re.sub(r"#(\d+);", lambda code: chr(int(code[1])), escaped) == "a; b #35; <br> %% c & d"
    assert len(escape("x" * 500)) == 120
