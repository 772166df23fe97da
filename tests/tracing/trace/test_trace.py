"""Reading: whatever state a trace is in, what can be read of it is read, and the rest is reported."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracing
from minidl import events
from minidl.events import Kind, Queue, emit
from tests.tracing.loads import LOADS
from tests.tracing.traces import begin, copy, records_of, steady, write_file
from tracing.recording import file_format as fmt
from tracing.trace.event_index import HOPS, NEVER
from tracing.trace.tasks import FIELDS

Recorded = Callable[[str], tracing.Trace]
EPOCH = events.epoch_id(1, 0)
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


def test_events_of_all_processes_are_in_time_order(recorded: Recorded) -> None:
    for name in LOADS:
        trace = recorded(name)
        assert trace.events.dtype == fmt.RECORD_DTYPE and (np.diff(trace.events["time"]) >= 0).all()
        assert trace.damage == [] and trace.dropped == 0 and trace.complete == len(trace)
        assert trace.start == trace.events["time"][0]
        assert trace.duration == trace.events["time"][-1] - trace.events["time"][0]
        for actor in range(len(trace.actors)):  # each thread's events in the order in which it emitted them
            assert (np.diff(trace.events["time"][trace.events["actor"] == actor]) >= 0).all()


def test_threads_have_their_roles(recorded: Recorded) -> None:
    actors = recorded("pinned").actors
    assert {(actor.role, actor.worker, actor.queue) for actor in actors} == {
        ("main", -1, 0),
        ("pin", -1, 0),
        ("worker", 0, 0),
        ("worker", 1, 0),
        *(("feeder", worker, queue) for worker in (0, 1) for queue in (Queue.INDEX, Queue.RESULT)),
    }
    main = [actor for actor in actors if actor.pid == os.getpid()]
    assert {actor.role for actor in main} == {"main", "pin", "feeder"} and len({a.pid for a in actors}) == 3
    assert all(actor.thread for actor in actors)


def test_a_trace_knows_its_loaders_and_their_configuration(recorded: Recorded) -> None:
    (loader,) = recorded("persistent").loaders
    assert (loader.num_workers, loader.epochs, loader.config["persistent_workers"]) == (2, (0, 1, 2), True)
    assert loader.first == 0 and loader.last == len(recorded("persistent")) - 1


def test_an_empty_trace_is_a_trace(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        pass
    trace = tracing.load(tmp_path / "run", strict=True)
    assert len(trace) == len(trace.tasks) == len(trace.events) == trace.duration == 0
    assert trace.state().loaders == [] and trace.state().k == -1 and tracing.check(trace) == []
    with pytest.raises(IndexError):
        trace.state(0)


# ---- tasks


def is_the_end(trace: tracing.Trace, loader: int, epoch: int, task: int) -> bool:
    """Whether the sampler had no keys for this task."""
    ends = trace.events[trace.events["kind"] == Kind.SAMPLER_END]
    return any((end["loader"], end["epoch"], end["value"]) == (loader, epoch, task) for end in ends)


@pytest.mark.parametrize("name", LOADS)
def test_the_table_of_tasks_agrees_with_the_events(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    expected: dict[tuple[int, int, int], dict[str, int]] = {}
    hop_of = {hop: column for column, hop in HOPS.items()}
    last: dict[tuple[int, int, int], int] = {}  # ARRIVED has no task: the GOT that follows it has
    yielded: dict[tuple[int, int], dict[str, int]] = {}
    begun: dict[tuple[int, int], int] = {}
    for event in trace.events:
        kind, queue, time = int(event["kind"]), int(event["queue"]), int(event["time"])
        loader, epoch, task = int(event["loader"]), int(event["epoch"]), int(event["task"])
        here = int(event["actor"]), queue, int(event["worker"])
        if kind == Kind.ARRIVED:
            last[here] = time
        if kind == Kind.ASKED and (loader, epoch) in yielded:
            yielded.pop((loader, epoch))["asked"] = time
        no_keys = kind == Kind.KEYS_BEGIN and is_the_end(trace, loader, epoch, task)
        if (kind, queue) not in hop_of or task < 0 or no_keys:
            continue
        row = expected.setdefault((loader, epoch, task), {})
        hop = hop_of[kind, queue]
        row.setdefault(hop, time)
        if hop.endswith("_got") and hop != "data_got":
            row[hop.replace("got", "arrived")] = last[here]
        if hop in ("index_sent", "result_sent"):
            row[hop.replace("sent", "bytes")] = int(event["value"])
        if hop in ("slot_granted", "slot_filled"):
            row["slot" if hop == "slot_granted" else "slot_bytes"] = int(event["value"])
        if hop in ("dispatched", "fetch_begin"):
            row["worker"] = int(event["worker"])
        if hop == "yielded":
            yielded[loader, epoch] = row
        if hop in ("fetch_begin", "collate_begin", "pin_begin"):
            begun[here[0], loader] = int(event["value"])
        if hop in ("fetch_end", "collate_end", "pin_end"):
            row[hop.replace("end", "cpu")] = int(event["value"]) - begun[here[0], loader]
    assert len(trace.tasks) == len(expected)
    for row in trace.tasks:
        key = int(row["loader"]), int(row["epoch"]), int(row["task"])
        assert {name: int(row[name]) for name in FIELDS[3:] if row[name] != -1} == {
            name: value for name, value in expected[key].items() if value != -1
        }, key


# ---- growing


@pytest.mark.parametrize("name", ["pinned", "persistent", "two_at_once", "empty", "nested", "dying"])
def test_a_trace_read_while_it_grows_ends_up_as_the_finished_one(recorded: Recorded, name: str, tmp_path: Path) -> None:
    """It grows in random steps, file by file, so that some events read late belong before some read early."""
    whole = copy(recorded(name), recorded(name).events, tmp_path / "whole")  # in which no two events have one time
    chance = random.Random(name)
    begin(tmp_path / "grown")
    pids = np.array([actor.pid for actor in whole.actors])
    written = dict.fromkeys(pids.tolist(), 0)
    records = {}
    for pid in written:
        mine = whole.events[pids[whole.events["actor"]] == pid].copy()
        mine["text"] = 0
        records[pid] = records_of(mine, mine["actor"])
    growing = None
    while any(written[pid] < len(records[pid]) for pid in written):
        pid = chance.choice([pid for pid in written if written[pid] < len(records[pid])])
        written[pid] = min(len(records[pid]), written[pid] + chance.randrange(1, 40))
        there = np.zeros(len(records[pid]), fmt.RECORD_DTYPE)
        there[: written[pid]] = records[pid][: written[pid]]
        write_file(tmp_path / "grown", pid, there, used=-1)
        growing = growing or tracing.load(tmp_path / "grown")
        before = len(growing)
        assert growing.refresh() == len(growing) - before
        _ = growing.tasks
        growing.state()
    assert growing is not None and growing.refresh() == 0
    again = tracing.load(tmp_path / "grown")
    for field in ("time", "kind", "task", "worker", "epoch"):
        assert (growing.events[field] == whole.events[field]).all()
        assert (again.events[field] == whole.events[field]).all()
    key = ["loader", "epoch", "task"]
    assert (np.sort(growing.tasks, order=key) == np.sort(whole.tasks, order=key)).all()
    assert {loader.epochs for loader in growing.loaders} == {loader.epochs for loader in whole.loaders}
    for k in range(0, len(whole), 7):
        found, expected = ({(each.loader, each.epoch): each for each in t.state(k).loaders} for t in (growing, whole))
        assert found.keys() == expected.keys()
        for which, loader in found.items():
            assert loader.task_info == expected[which].task_info
            assert loader.index_queues == expected[which].index_queues
            assert loader.workers == expected[which].workers


def test_a_trace_is_read_while_it_is_recorded(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        emit(Kind.PUT, EPOCH, 0, 0, Queue.INDEX, text="first")
        trace = tracing.load(tmp_path / "run", strict=True)
        assert len(trace) == 1 and trace.refresh() == 0
        for n in range(1, 5000):
            emit(Kind.PUT, EPOCH, n, 0, Queue.INDEX, text=n)
        assert trace.refresh() == 4999 and trace.text(4999) == 4999
        recorder = events.installed()
        pid = os.fork()
        if pid == 0:
            events.install(recorder)  # as a worker does
            emit(Kind.GOT, EPOCH, 0, 0, Queue.INDEX, text="child")
            os._exit(0)
        os.waitpid(pid, 0)
        assert trace.refresh() == 1 and trace.text(5000) == "child"
    assert trace.refresh() == 0 and trace.damage == []


@pytest.mark.parametrize("before", [1, 1023, 1024, 5000])
def test_a_process_that_keeps_recording_does_not_keep_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """Each read finds something new."""
    with tracing.record(tmp_path / "run"):
        for n in range(before):
            emit(Kind.PUT, EPOCH, n)
        reads, pread = 0, os.pread

        def read(*args: int) -> bytes:
            nonlocal reads
            emit(Kind.PUT, EPOCH, before + reads)
            reads += 1
            assert reads <= before // 1000 + 3, "the reader runs after the process"
            return pread(*args)

        monkeypatch.setattr(os, "pread", read)
        trace = tracing.load(tmp_path / "run")
        monkeypatch.undo()
        assert len(trace) >= before
        trace.refresh()
        assert trace.events["task"].tolist() == list(range(before + reads))


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


def test_a_refresh_looks_only_at_what_is_new(tmp_path: Path) -> None:
    """An index that is rebuilt each time would look at all events."""
    steady(tmp_path / "run", 2000)
    trace = tracing.load(tmp_path / "run")
    seen: list[int] = []
    add = trace.index.add
    trace.index.add = lambda events, first, actors: seen.append(len(events) - first) or add(events, first, actors)  # type: ignore[method-assign]
    event = np.zeros(1, fmt.RECORD_DTYPE)
    event["kind"], event["time"], event["loader"], event["task"] = Kind.ASKED, trace.events["time"][-1] + 1, 1, -1
    write_file(tmp_path / "run", 999, event)
    assert trace.refresh() == 1 and seen == [1]


# ---- damage


def damaged(run: Path) -> tracing.Trace:
    with pytest.warns(tracing.TraceDamage) as warned:
        trace = tracing.load(run)
    assert [str(warning.message) for warning in warned] == [str(error) for error in trace.damage]
    with pytest.raises(tracing.TraceError) as raised:
        tracing.load(run, strict=True)
    assert str(raised.value) == str(trace.damage[0]) and "\n" not in str(raised.value)
    return trace


IMPOSSIBLE = [
    ("kind", 255), ("queue", 4), ("worker", -2), ("task", -6), ("task", 1 << 30), ("time", -1), ("actor", 1 << 16),
    ("kind", Kind.LOADER),  # with a negative number of workers
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), IMPOSSIBLE)
def test_everything_before_an_impossible_record_is_kept(run: Path, field: str, value: int) -> None:
    path, _ = files(run)
    data = bytearray(path.read_bytes())
    records = np.frombuffer(data, fmt.RECORD_DTYPE, offset=fmt.HEADER_SIZE)
    records[field][7] = value
    path.write_bytes(data)
    trace = damaged(run)
    offset = fmt.HEADER_SIZE + 7 * fmt.RECORD.size
    assert trace.events["task"].tolist() == list(range(7))
    assert str(trace.damage[0]) == f"{path}, byte {offset}: not a record"
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
        assert len(trace.tasks) <= len(trace)
        tracing.check(trace)
        for k in range(0, len(trace), 1 + len(trace) // 5):
            trace.state(k)


def test_a_task_without_an_event_has_no_row(tmp_path: Path) -> None:
    """A damaged task id that is larger, but not impossible: one row, and none for those in between."""
    with tracing.record(tmp_path / "run"):
        for task in (0, 1, 1 << 12):
            emit(Kind.PUT, EPOCH, task, 0, Queue.INDEX)
    assert tracing.load(tmp_path / "run").tasks["task"].tolist() == [0, 1, 1 << 12]


@pytest.mark.parametrize("line", [b'{"name": "x"}', b'{"actor": [1]}', b"17", b'"', b"\xff"])
def test_a_line_that_names_no_thread_is_damage(run: Path, line: bytes) -> None:
    _, texts = files(run)
    whole = texts.read_bytes()
    texts.write_bytes(whole + line + b"\n")
    assert str(damaged(run).damage[0]) == f"{texts}, byte {len(whole)}: not a text"


def test_a_text_that_is_missing_is_named_and_the_events_are_kept(run: Path) -> None:
    _, texts = files(run)
    whole = texts.read_bytes()
    texts.write_bytes(whole[: whole.index(b"[12,") + 3])
    trace = damaged(run)
    assert len(trace) == trace.complete == PUTS
    assert trace.text(11) == [11] and trace.text(12) is None
    assert str(trace.damage[0]) == f"{texts}, byte {whole.index(b'[12,')}: text 12 is missing, and perhaps others"


def test_what_is_not_a_trace_is_refused(tmp_path: Path, run: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", files(run)[0]):
        with pytest.raises(tracing.TraceError, match=r"not a trace: pass the folder that was given to tracing\.record"):
            tracing.load(path)
    files(run)[0].write_bytes(b"x" * 300)
    with pytest.raises(tracing.TraceError, match="byte 0: not an events file"):
        tracing.load(run)


def test_a_newer_format_is_refused(run: Path) -> None:
    path, _ = files(run)
    whole = path.read_bytes()
    path.write_bytes(whole[:8] + (fmt.VERSION + 1).to_bytes(4, "little") + whole[12:])
    with pytest.raises(tracing.TraceError, match=rf"byte 8: format {fmt.VERSION + 1} is newer"):
        tracing.load(run)
    path.write_bytes(whole)
    (run / fmt.DESCRIPTION).write_text(json.dumps({"format": fmt.VERSION + 1}))
    with pytest.raises(tracing.TraceError, match=f"trace.json: format {fmt.VERSION + 1} is newer"):
        tracing.load(run)


def test_a_process_killed_before_its_header_left_nothing(run: Path) -> None:
    fmt.events_file(run, 1, 0).write_bytes(b"")
    fmt.events_file(run, 2, 0).write_bytes(bytes(1000))
    assert len(tracing.load(run, strict=True)) == PUTS


def test_recording_anew_over_a_trace_that_is_being_read_is_reported(run: Path) -> None:
    trace = tracing.load(run)
    path, _ = files(run)
    with tracing.record(run):
        assert trace.refresh() == 0 and len(trace) == PUTS
    assert str(trace.damage[0]) == f"{path}, byte 0: gone: the trace was removed, or recorded again"


# ---- size


@pytest.mark.slow
def test_a_million_events(tmp_path: Path) -> None:
    """Loaded and sorted in a second of this process's time, then any state in 50 ms. The bounds leave room for slower
    machines."""
    length = steady(tmp_path / "run", 60_000)
    assert length > 1_000_000
    before = time.process_time()
    trace = tracing.load(tmp_path / "run")
    assert time.process_time() - before < 1.5
    chance = random.Random(1)
    for k in [0, length - 1, *(chance.randrange(length) for _ in range(20))]:
        before = time.process_time()
        (loader,) = trace.state(k).loaders
        assert time.process_time() - before < 0.1
        assert loader.send_idx - loader.yielded <= 16 and NEVER not in loader.task_info
