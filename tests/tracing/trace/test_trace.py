"""Reading: whatever state a trace is in, what can be read of it is read, and the rest is reported."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracing
from minidl.events import Kind, Queue, emit
from tests.tracing.loads import LOADS, Recorded
from tests.tracing.traces import begin, copy, write_file
from tracing.recording import file_format as fmt
from tracing.trace.event_index import HOPS
from tracing.trace.file_reader import ProcessFiles
from tracing.trace.tasks import FIELDS

EPOCH = 1 << 32
PUTS = 20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A trace of one process: 20 puts, each with a text."""
    with tracing.record(tmp_path / "run"):
        for n in range(PUTS):
            emit(Kind.PUT, EPOCH, n, 0, Queue.INDEX, value=-1, text=[n])
    return tmp_path / "run"


def files(run: Path) -> tuple[Path, Path]:
    (path,) = run.glob("events-*")
    return path, fmt.text_file(path)


# ---- sound traces


def test_an_empty_trace_is_a_trace(nothing: tracing.Trace) -> None:
    assert len(nothing) == len(nothing.tasks) == len(nothing.events) == nothing.duration == 0
    assert nothing.state().loaders == [] and nothing.state().k == -1 and tracing.check(nothing) == []
    with pytest.raises(IndexError):
        nothing.state(0)


# ---- tasks


# A hop -> the columns that hold its `value`, and by which hop the CPU time that it has spent began.
SIZES = {"index_sent": "index_bytes", "result_sent": "result_bytes", "slot_filled": "slot_bytes"}
VALUES = {"slot_granted": "slot", **SIZES}
CPU = {"fetch_end": "fetch_begin", "collate_end": "collate_begin", "pin_end": "pin_begin"}


def expected_tasks(trace: tracing.Trace) -> dict[tuple[int, ...], dict[str, int]]:
    """The rows of `trace.tasks`, by loader, epoch and task: the first event of each hop, one after the other."""
    rows: dict[tuple[int, ...], dict[str, int]] = {}
    hop_of = {hop: column for column, hop in HOPS.items()}
    arrived: dict[tuple[int, ...], int] = {}  # ARRIVED has no task: the GOT that follows it has
    yielded: dict[tuple[int, ...], dict[str, int]] = {}  # the last one of an epoch
    for event in trace.events.tolist():
        time, epoch, loader, value, _, task, actor, worker, queue, kind = event
        hop = hop_of.get((kind, queue), "")
        if kind == Kind.ARRIVED:
            arrived[actor, queue, worker] = time
        elif kind == Kind.ASKED and (loader, epoch) in yielded:
            yielded.pop((loader, epoch))["asked"] = time
        elif kind == Kind.SAMPLER_END:
            rows.pop((loader, epoch, value), None)  # there were no keys for this one
        if not hop or task < 0:
            continue
        row = rows.setdefault((loader, epoch, task), {})
        row.setdefault(hop, time)
        if hop in ("index_got", "result_got"):
            row[hop.replace("got", "arrived")] = arrived[actor, queue, worker]
        if hop in ("dispatched", "fetch_begin"):
            row["worker"] = worker
        if hop in VALUES:
            row[VALUES[hop]] = value
        if hop == "yielded":
            yielded[loader, epoch] = row
        row[f"{hop} value"] = value
        if hop in CPU:
            row[hop.replace("end", "cpu")] = value - row[f"{CPU[hop]} value"]
    return rows


@pytest.mark.parametrize("name", LOADS)
def test_the_table_of_tasks_agrees_with_the_events(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    expected = expected_tasks(trace)
    assert len(trace.tasks) == len(expected)
    for row in trace.tasks:
        found = {name: int(row[name]) for name in FIELDS[3:] if row[name] != -1}
        known = expected[int(row["loader"]), int(row["epoch"]), int(row["task"])]
        assert found == {name: known[name] for name in FIELDS[3:] if known.get(name, -1) != -1}


# ---- growing


def essence(trace: tracing.Trace, k: int) -> dict[tuple[int, int], Any]:
    """Of the state after event k: what does not depend on how a trace numbers its iterators."""
    loaders = trace.state(k).loaders
    return {(each.loader, each.epoch): (each.task_info, each.index_queues, each.workers) for each in loaders}


@pytest.mark.parametrize("name", ["pinned", "persistent", "two_at_once", "empty", "nested", "dying"])
def test_a_trace_read_while_it_grows_ends_up_as_the_finished_one(recorded: Recorded, name: str, tmp_path: Path) -> None:
    """It grows in random steps, file by file, so that some events read late belong before some read early."""
    whole = copy(recorded(name), recorded(name).events, tmp_path / "whole")  # in which no two events have one time
    chance = random.Random(name)
    begin(tmp_path / "grown")
    pids = np.array([actor.pid for actor in whole.actors])
    written = dict.fromkeys(pids.tolist(), 0)
    records = {pid: whole.events[pids[whole.events["actor"]] == pid].copy() for pid in written}
    growing = None
    while left := [pid for pid in written if written[pid] < len(records[pid])]:
        pid = chance.choice(left)
        written[pid] = min(len(records[pid]), written[pid] + chance.randrange(1, 40))
        there = np.zeros(len(records[pid]), fmt.RECORD_DTYPE)
        there[: written[pid]] = records[pid][: written[pid]]
        there["text"] = 0
        write_file(tmp_path / "grown", pid, there, used=-1)
        growing = growing or tracing.load(tmp_path / "grown")
        before = len(growing)
        assert growing.refresh() == len(growing) - before
        _ = growing.tasks
        growing.state()
    assert growing is not None and growing.refresh() == 0
    for field in ("time", "kind", "task", "worker", "epoch"):
        assert (growing.events[field] == whole.events[field]).all()
    key = ["loader", "epoch", "task"]
    assert (np.sort(growing.tasks, order=key) == np.sort(whole.tasks, order=key)).all()
    assert {loader.epochs for loader in growing.loaders} == {loader.epochs for loader in whole.loaders}
    assert all(essence(growing, k) == essence(whole, k) for k in range(0, len(whole), 7))


@pytest.mark.parametrize("before", [1, 1023, 1024])
def test_a_process_that_keeps_recording_does_not_keep_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """Each read finds something new."""
    with tracing.record(tmp_path / "run"):
        for n in range(before):
            emit(Kind.PUT, EPOCH, n, text=n)
        reads, pread = 0, os.pread

        def read(*args: int) -> bytes:
            nonlocal reads
            emit(Kind.PUT, EPOCH, before + reads, text=before + reads)
            reads += 1
            assert reads <= before // 1000 + 3, "the reader runs after the process"
            return pread(*args)

        monkeypatch.setattr(os, "pread", read)
        trace = tracing.load(tmp_path / "run")
        monkeypatch.undo()
        assert (read_first := len(trace)) >= before
        assert trace.refresh() == before + reads - read_first
        assert [trace.text(event) for event in trace.events] == list(range(before + reads))
    assert trace.refresh() == 0 and trace.damage == []


def test_a_record_that_is_not_written_yet_is_read_later(tmp_path: Path) -> None:
    """A thread claimed a record and was interrupted before it wrote it; others went on."""
    records = np.zeros(5, fmt.RECORD_DTYPE)
    records["kind"], records["time"], records["task"] = Kind.PUT, range(1, 6), range(5)
    late = records.copy()
    late[[1, 2]] = 0
    write_file(begin(tmp_path / "run"), 1, late, used=-1)
    os.truncate(fmt.events_file(tmp_path / "run", 1, 0), fmt.HEADER_SIZE + 10 * fmt.RECORD.size)
    trace = tracing.load(tmp_path / "run", strict=True)
    assert trace.events["task"].tolist() == [0, 3, 4]
    for place, expected in ((2, [0, 2, 3, 4]), (1, [0, 1, 2, 3, 4])):
        with open(fmt.events_file(tmp_path / "run", 1, 0), "r+b") as file:
            file.seek(fmt.HEADER_SIZE + place * fmt.RECORD.size)
            file.write(records[place].tobytes())
        assert trace.refresh() == 1
        assert trace.events["task"].tolist() == expected


# ---- damage


def damaged(run: Path) -> tracing.Trace:
    with pytest.warns(tracing.TraceDamage) as warned:
        trace = tracing.load(run)
    assert [str(warning.message) for warning in warned] == [str(error) for error in trace.damage]
    with pytest.raises(tracing.TraceError) as raised:
        tracing.load(run, strict=True)
    assert str(raised.value) == str(trace.damage[0]) and "\n" not in str(raised.value)
    return trace


# "kind" of LOADER: with a negative number of workers.
IMPOSSIBLE = [("kind", 255), ("kind", Kind.LOADER), ("queue", 4), ("worker", -2), ("task", -6), ("task", 1 << 30)]
IMPOSSIBLE += [("time", -1), ("actor", 1 << 16)]


@pytest.mark.parametrize(("field", "value"), IMPOSSIBLE)
def test_everything_before_an_impossible_record_is_kept(run: Path, field: str, value: int) -> None:
    path, _ = files(run)
    records = np.memmap(path, fmt.RECORD_DTYPE, "r+", fmt.HEADER_SIZE)
    records[field][7] = value
    records.flush()
    trace = damaged(run)
    assert trace.events["task"].tolist() == list(range(7))
    assert str(trace.damage[0]) == f"{path}, byte {fmt.HEADER_SIZE + 7 * fmt.RECORD.size}: not a record"
    assert trace.refresh() == 0 and len(trace.damage) == 1


def rows(parts: Iterable[np.ndarray]) -> set[Any]:
    """The records, without what a trace numbers itself."""
    names = ["time", "kind", "queue", "worker", "task", "value", "epoch", "loader"]
    return {row for records in parts for row in records[names].tolist()}


@settings(max_examples=100, derandomize=True, deadline=None)
@given(data=st.data())
def test_a_file_cut_off_or_with_another_byte_costs_no_more_than_what_follows(
    recorded: Recorded, data: st.DataObject
) -> None:
    """In that file; or the trace is refused in one line. What is left can be judged."""
    whole = recorded(data.draw(st.sampled_from(("persistent", "nested", "dying")))).path
    path = data.draw(st.sampled_from(sorted(each for each in whole.iterdir() if each.stat().st_size)))
    content = path.read_bytes()
    at, byte = data.draw(st.integers(0, len(content) - 1)), data.draw(st.none() | st.integers(0, 255))
    records = {each: np.fromfile(each, fmt.RECORD_DTYPE, offset=fmt.HEADER_SIZE) for each in fmt.events_files(whole)}
    known = rows(records.values())
    if path in records:
        records[path] = records[path][: max(0, at - fmt.HEADER_SIZE) // fmt.RECORD.size]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", tracing.TraceDamage)
        shutil.copytree(whole, folder, dirs_exist_ok=True)
        Path(folder, path.name).write_bytes(content[:at] + (b"" if byte is None else bytes([byte]) + content[at + 1 :]))
        try:
            trace = tracing.load(folder)
        except tracing.TraceError as error:
            assert path.name in str(error) and "\n" not in str(error)
            return
        found = rows([trace.events])
        assert rows(records.values()) <= found and len(found - known) <= (byte is not None)
        at_once = not at and byte is None  # it may be of a process that was killed at once
        assert len(known - found) <= 1 or trace.damage or at_once
        for error in trace.damage:
            assert error.path.name in (path.name, fmt.text_file(path).name) and "\n" not in str(error)
        assert len(trace.tasks) <= len(trace)  # a damaged task id may be larger: there are none in between
        tracing.check(trace)
        _ = trace.samples, trace.stacks
        for k in range(0, len(trace), 1 + len(trace) // 5):
            trace.state(k)


def test_damaged_texts_are_named_once_and_the_events_are_kept(run: Path) -> None:
    _, texts = files(run)
    whole = texts.read_bytes()
    texts.write_bytes(whole + b'{"actor": [1]}\n')
    assert str(damaged(run).damage[0]) == f"{texts}, byte {len(whole)}: not a text"
    texts.write_bytes(whole[: whole.index(b"[12,") + 3])
    trace = damaged(run)
    assert len(trace) == trace.complete == PUTS
    assert trace.text(11) == [11] and trace.text(12) is None
    assert str(trace.damage[0]) == f"{texts}, byte {whole.index(b'[12,')}: text 12 is missing, and perhaps others"


@pytest.mark.parametrize("written", [0, 3, 15])
def test_a_text_that_is_not_wholly_written_is_read_later(run: Path, written: int) -> None:
    """A thread has claimed its place and is about to write; another has written behind it."""
    events, texts = files(run)
    whole = texts.read_bytes()
    first, after = whole.index(b"[7, "), whole.index(b"[8, ")
    texts.write_bytes(whole[: first + written] + bytes(after - first - written) + whole[after:] + bytes(4096))
    read = ProcessFiles(events)
    read._read_texts()
    assert sorted(read.texts) == [n for n in range(PUTS) if n != 7]
    texts.write_bytes(whole + b"[20, 1]        \n" + bytes(4096))
    read._read_texts()
    assert sorted(read.texts) == [*range(PUTS + 1)] and not read.damage


def test_what_is_not_a_trace_is_refused(tmp_path: Path, run: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", files(run)[0]):
        with pytest.raises(tracing.TraceError, match="not a trace: pass the folder that `run`"):
            tracing.load(path)
    files(run)[0].write_bytes(b"x" * 300)
    with pytest.raises(tracing.TraceError, match="byte 0: not an events file"):
        tracing.load(run)


def test_a_newer_format_is_refused(run: Path) -> None:
    path, _ = files(run)
    whole, newer = path.read_bytes(), fmt.VERSION + 1
    (run / fmt.DESCRIPTION).write_text(json.dumps({"format": newer}))
    with pytest.raises(tracing.TraceError, match=f"trace.json: it has format {newer}, .* update it"):
        tracing.load(run)
    (run / fmt.DESCRIPTION).unlink()
    path.write_bytes(whole[:8] + newer.to_bytes(4, "little") + whole[12:])
    with pytest.raises(tracing.TraceError, match=f"byte 8: it has format {newer}, .* update it"):
        tracing.load(run)


def test_a_process_killed_before_its_header_left_nothing(run: Path) -> None:
    fmt.events_file(run, 1, 0).write_bytes(b"")
    fmt.events_file(run, 2, 0).write_bytes(bytes(1000))
    assert len(tracing.load(run, strict=True)) == PUTS


def test_recording_over_a_trace_that_is_being_read_is_reported(run: Path) -> None:
    trace = tracing.load(run)
    path, _ = files(run)
    with tracing.record(run):
        assert trace.refresh() == 0 and len(trace) == PUTS
    assert str(trace.damage[0]) == f"{path}, byte 0: gone: the trace was removed, or recorded again"
