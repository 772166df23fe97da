"""Hangs are explained: of processes that really hang, and of traces with a part cut off."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

import tracing
from minidl.events import Kind, Queue
from tests.tracing.hanging import PROGRAMS, hanging, later, until_it_hangs
from tests.tracing.loads import LOADS
from tests.tracing.traces import copy
from tracing.__main__ import main
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.explain import explain
from tracing.analysis.hang.hang import Hang
from tracing.analysis.hang.patience import FLOOR, FLOOR_ENDED, TIMES
from tracing.analysis.hang.stuck_moments import Ending
from tracing.recording import file_format as fmt

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="starts processes by fork"),
]

Recorded = Callable[[str], tracing.Trace]
KEYS = "batch 4, keys [8, 9]"
WAITS = f"waits on worker_result_queue for {KEYS}"
FETCHES = f"is in fetch of {KEYS}"

# What hangs -> why, and who waits for whom: the thread's name, and what it does.
HANGS: dict[str, tuple[Cause, list[tuple[str, str]]]] = {
    "blocks": (Cause.DATASET, [("main", WAITS), ("worker 0", FETCHES)]),
    "locked": (Cause.DATASET, [("main", WAITS), ("worker 0", FETCHES)]),
    "torch": (Cause.DATASET, [("main", WAITS), ("worker 0", FETCHES)]),
    "without order": (Cause.DATASET, [("main", "the first of them batch 4"), ("the worker with batch 4", FETCHES)]),
    "pinned": (
        Cause.DATASET,
        [
            ("main", f"waits on data_queue for {KEYS}"),
            ("the pin thread", "waits on worker_result_queue, where there is no whole message"),
            ("worker 0", FETCHES),
        ],
    ),
    "nests": (
        Cause.DATASET,
        [
            ("main", WAITS),
            ("worker 0", FETCHES),
            ("worker 0", "in a loader of its own is in fetch of batch 3, keys [9, 10, 11]"),
        ],
    ),
    "serial": (Cause.DATASET, [("main", FETCHES)]),
    "torch drops": (Cause.UNSENDABLE, [("main", WAITS), ("the feeder thread of worker 0", "could not send batch 4")]),
    "sampler": (Cause.SAMPLER, [("main", "draws the keys of batch 8")]),
    "init": (Cause.INIT_FN, [("main", "for batch 0"), ("worker 0", "is in worker_init_fn")]),
    "collate": (Cause.COLLATE, [("main", "for batch 0"), ("worker 0", "is in collate_fn with batch 0")]),
    "resume": (
        Cause.START,
        [("main", "waits for worker 0 to acknowledge that epoch 1 begins"), ("worker 0", "gets the dataset ready")],
    ),
    "trains": (Cause.TRAINING, [("main", "has batch 2 and has not asked for the next")]),
}


def test_every_program_that_hangs_is_tested() -> None:
    assert HANGS.keys() == PROGRAMS.keys() - {"timed out", "interrupted"}


@pytest.mark.parametrize("name", HANGS)
def test_who_waits_for_whom(name: str, tmp_path: Path) -> None:
    cause, chain = HANGS[name]
    with hanging(name, tmp_path / "trace", cause, Ending.ONGOING, chain[0][1]) as (trace, hang, pid):
        assert explain(trace, later(trace, FLOOR // 2)) is None  # it may only be slow
        tasks = trace.tasks
        has_it = f"worker {tasks['worker'][tasks['task'] == 4].item()}" if (tasks["task"] == 4).any() else ""
        chain = [(who.replace("the worker with batch 4", has_it), what) for who, what in chain]
        assert [link.who.partition(" (pid ")[0] for link in hang.links] == [who for who, _ in chain]
        for link, (_, what) in zip(hang.links, chain, strict=True):
            assert what in link.what
            assert trace.start <= link.since <= hang.until
            assert 0 <= link.event < len(trace)
            assert str(link.pid) in link.who and psutil.Process(link.pid).is_running()
        assert hang.links[0].pid == pid
        recorded = {each.pid for each in hang.last_events}
        assert pid in recorded and hang.links[-1].pid in recorded
        for each in hang.last_events:  # the last of its thread, at the time the hang was seen
            event = trace.events[each.event]
            assert not (trace.events["actor"][each.event + 1 :] == event["actor"]).any()
            assert each.age == hang.until - event["time"] and Kind(event["kind"]).name in each.what
        # The others have done what they were given.
        for link in hang.others:
            assert link.who.startswith("worker") and link.who not in {other.who for other in hang.links}


@pytest.mark.slow
def test_check_prints_all_of_it_and_the_report_the_gist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hanging("blocks", tmp_path / "trace", Cause.DATASET, Ending.ONGOING, WAITS) as (trace, hang, pid):
        worker = hang.links[1]
        lines = str(hang).splitlines()
        assert re.match(
            rf"It looks stuck: main \(pid {pid}\) has made no progress for 30\.\d s \(before, it took at most", lines[0]
        )
        assert re.match(rf"  main \(pid {pid}\) {re.escape(WAITS)}: for 30\.\d s, since ", lines[1])
        assert lines[2] == "    what would wake it: a message of worker 0, or its end"
        assert lines[3].startswith(f"  worker 0 (pid {worker.pid}) {FETCHES}: for ")
        assert lines[3].endswith(f"[event {worker.event}]")
        assert lines[4] == f"  Why   {Cause.DATASET.why}" and f"py-spy dump --pid {worker.pid}" in lines[5]
        assert "Other workers" in lines and "Last events" in lines
        last = lines[lines.index("Last events") + 1 :]
        assert any(line.split()[:2] == ["worker", "0"] and "FETCH_BEGIN: fetches batch 4" in line for line in last)
        assert main(["check", str(trace.path)]) == 0
        assert "all laws hold" in capsys.readouterr().out  # and no hang: it has not lasted long
        late_enough = hang.links[0].since + max(FLOOR_ENDED, TIMES * hang.usual)
        while not any(each["pid"] == pid and each["time"] > late_enough for each in trace.samples):
            time.sleep(0.05)  # main must have waited this long, and be known to have lived
        while not {pid, worker.pid} <= {stack.pid for stack in trace.stacks}:
            time.sleep(0.05)
        os.kill(worker.pid, signal.SIGSTOP)  # it would end a second after main
        os.kill(pid, signal.SIGKILL)
        while not (trace.events["kind"] == Kind.PARENT_DIED).any():
            trace.refresh()  # worker 1 records it, worker 0 cannot
        assert main(["check", str(trace.path)]) == 0
        printed = capsys.readouterr().out
        assert (
            f"When main (pid {pid}) was killed, or left without a shutdown, it had made no progress for at least"
            in printed
        )
        assert f"{WAITS}:" in printed and f"{FETCHES}:" in printed
        assert re.search(r"hanging.py:\d+, run: for number, _batch in enumerate\(loader, 1\):\n", printed)
        assert re.search(r"hanging.py:\d+, (Blocks\.)?__getitem__: threading.Event\(\).wait\(\)\n", printed)
        assert "Without main, these live on: kill" in printed and str(worker.pid) in printed
        first, second = tracing.report(tracing.load(trace.path)).notes[:2]
        assert first.startswith(f"When main (pid {pid}) was killed") and FETCHES in first
        assert second.startswith("Last events: ") and f"worker 0 (pid {worker.pid})" in second


def test_a_stopped_process_is_to_be_continued(tmp_path: Path) -> None:
    with hanging("blocks", tmp_path / "trace", Cause.DATASET, Ending.ONGOING, WAITS) as (trace, hang, pid):
        for stopped, links in ((hang.links[1].pid, 2), (pid, 1)):
            os.kill(stopped, signal.SIGSTOP)
            while psutil.Process(stopped).status() != psutil.STATUS_STOPPED:
                pass
            _, found = until_it_hangs(trace.path, Cause.STOPPED)
            assert len(found.links) == links and found.links[-1].pid == stopped
            assert found.advice == f"Continue it: kill -CONT {stopped}"


def test_a_wait_that_timed_out_is_explained(tmp_path: Path) -> None:
    with hanging("timed out", tmp_path / "trace", Cause.DATASET, Ending.TIMED_OUT) as (trace, hang, _):
        assert hang.age >= 200_000_000 and FETCHES in hang.links[-1].what
        assert "when its timeout ran out" in tracing.report(trace).notes[0]


def test_a_wait_that_was_interrupted_is_explained_if_it_was_long(tmp_path: Path) -> None:
    shuts_down = "shuts the loader down, and waits for worker 0 to exit"
    with hanging("interrupted", tmp_path / "trace", Cause.DATASET, Ending.ONGOING, shuts_down) as (trace, hang, _):
        assert FETCHES in hang.links[1].what
        begin = int(np.flatnonzero(trace.events["kind"] == Kind.SHUTDOWN_BEGIN)[0])
        events, later_events = trace.events[: begin + 1].copy(), trace.events[: begin + 1].copy()
        later_events["time"][begin] += 2 * FLOOR
        found = explain(part(trace, later_events, tmp_path / "late"))
        assert found is not None and found.ending is Ending.INTERRUPTED
        assert found.age > FLOOR and WAITS in found.links[0].what and FETCHES in found.links[1].what
        assert explain(part(trace, events, tmp_path / "soon")) is None


def test_a_wait_until_the_end_of_the_recording_is_explained_if_it_was_long(hung: Recorded, tmp_path: Path) -> None:
    """As after Ctrl-C within `with tracing.record(...)`, while something still holds the iterator."""
    trace = part(hung("blocks"), hung("blocks").events, tmp_path / "trace")
    for lasted, explained in ((FLOOR // 2, False), (FLOOR + 10**9, True)):
        about = {**trace.about, "stopped": later(trace, lasted)}
        (trace.path / fmt.DESCRIPTION).write_text(json.dumps(about))
        found = explain(tracing.load(trace.path), later(trace, 10 * lasted))
        assert (found is not None) is explained
    assert found is not None and found.ending is Ending.RECORDED
    assert found.age == found.until - found.links[0].since >= FLOOR and FETCHES in found.links[1].what


def test_main_killed_while_it_trains_was_stuck_if_the_step_was_long(hung: Recorded, tmp_path: Path) -> None:
    pids = {pid: gone() for pid in living(hung("trains"))}
    trace = part(hung("trains"), hung("trains").events, tmp_path / "trace", pids)
    assert explain(trace, later(trace, FLOOR // 2)) is None
    found = explain(trace, later(trace, 2 * FLOOR))
    assert found is not None and (found.cause, found.ending) == (Cause.TRAINING, Ending.KILLED)


# ---- runs that do not hang


@pytest.mark.parametrize("name", LOADS)
def test_a_run_that_ended_does_not_hang(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    assert explain(trace) is None and explain(trace, later(trace)) is None


def test_an_empty_trace_does_not_hang(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "trace"):
        pass
    assert explain(tracing.load(tmp_path / "trace")) is None


# ---- edits of a trace in which main waits for batch 4, worker 0 fetches it, worker 1 has finished its tasks


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tracing.Trace]:
    """hung("blocks") is the trace of that program as it was when it hung."""
    traces: dict[str, tracing.Trace] = {}

    def of(name: str) -> tracing.Trace:
        if name not in traces:
            cause, chain = HANGS[name]
            with hanging(name, tmp_path_factory.mktemp(name) / "trace", cause, Ending.ONGOING, chain[0][1]) as (
                trace,
                *_,
            ):
                traces[name] = trace
        return traces[name]

    return of


def test_patience_grows_with_what_was_seen(hung: Recorded, tmp_path: Path) -> None:
    """It is measured by the run itself: where a batch took 20 s, a minute is not long."""
    events = hung("blocks").events.copy()
    quick = part(hung("blocks"), events, tmp_path / "quick", living(hung("blocks")))
    assert explain(quick, later(quick, FLOOR - 10**9)) is None
    assert explain(quick, later(quick, FLOOR + 10**9)) is not None
    events["time"][np.flatnonzero(events["kind"] == Kind.ASKED)[0] + 1 :] += 20 * 10**9
    slow = part(hung("blocks"), events, tmp_path / "slow", living(hung("blocks")))
    assert explain(slow, later(slow, 59 * 10**9)) is None
    assert explain(slow, later(slow, 65 * 10**9)) is not None


def test_the_present_is_the_default(hung: Recorded, tmp_path: Path) -> None:
    """Unless there is more to read. And a wait that lasts far beyond its timeout was interrupted."""
    events = hung("blocks").events.copy()
    events["time"] += 1 - events["time"][0]  # when the clock began
    trace = part(hung("blocks"), events, tmp_path / "trace", living(hung("blocks")), room=1)
    found = explain(trace)
    assert found is not None and found.cause is Cause.INTERRUPTED and found.ending is Ending.ONGOING
    path = trace.path / f"events-{os.getpid()}-0.bin"
    records = np.memmap(path, fmt.RECORD_DTYPE, "r+", fmt.HEADER_SIZE)
    records[-1] = records[-2]
    records.flush()
    assert explain(trace) is None


def test_what_was_not_recorded_is_not_judged(hung: Recorded, tmp_path: Path) -> None:
    """Main's file was full, or is cut off: it may have made progress."""
    trace = hung("blocks")
    for change in ("full", "cut off"):
        changed = part(trace, trace.events, tmp_path / change, living(trace))
        path = changed.path / f"events-{os.getpid()}-0.bin"
        data = path.read_bytes()
        if change == "full":
            data = data[: fmt.DROPPED_AT] + fmt.COUNT.pack(7) + data[fmt.HEADER.size :]
        path.write_bytes(data if change == "full" else data[: -fmt.RECORD.size])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tracing.TraceDamage)
            assert explain(tracing.load(changed.path), later(changed)) is None


def test_a_death_that_main_has_not_noticed_is_found(hung: Recorded, tmp_path: Path) -> None:
    trace, pids = hung("blocks"), living(hung("blocks"))
    (pid,) = (actor.pid for actor in trace.actors if (actor.role, actor.worker) == ("worker", 0))
    pids[pid] = gone()
    found = explain_part(trace, trace.events, tmp_path, pids)
    assert found.cause is Cause.DEAD
    assert found.links[-1].who == f"worker 0 (pid {pids[pid]})" and FETCHES in found.links[-1].what


def test_a_lost_task_is_found(hung: Recorded, tmp_path: Path) -> None:
    """Worker 0 took it, put nothing, and got no other."""
    events = hung("blocks").events
    fetches = (events["kind"] == Kind.FETCH_BEGIN) & (events["task"] == 4)
    kept = events[~fetches & (events["task"] != 6)]
    waits = edited(events[fetches], kind=Kind.WAIT, queue=Queue.INDEX, task=-1, time=events["time"][-1])
    found = explain_part(hung("blocks"), np.concatenate([kept, waits]), tmp_path)
    assert found.cause is Cause.LOST
    assert found.links[-1].what == "waits on index_queue 0, which is empty: nothing will be sent to it"


def result(events: np.ndarray, *kinds: Kind) -> list[np.ndarray]:
    """Batch 4, put on the result queue and sent like batch 2, up to these steps, at the end of the trace."""
    way = [
        events[(events["kind"] == kind) & (events["queue"] == Queue.RESULT) & (events["task"] == 2)] for kind in kinds
    ]
    return [edited(event[:1], task=4, time=events["time"][-1]) for event in way]


@pytest.mark.parametrize(
    ("name", "kinds", "cause"),
    [
        ("pinned", (Kind.PUT, Kind.SEND_BEGIN, Kind.SENT), Cause.HALF_MESSAGE),
        ("blocks", (Kind.PUT, Kind.SEND_BEGIN, Kind.SENT), Cause.HALF_MESSAGE),
        ("blocks", (Kind.PUT, Kind.SEND_BEGIN), Cause.PICKLING),
        ("torch", (Kind.PUT,), Cause.UNSEEN),
    ],
)
def test_a_message_that_does_not_arrive_is_blamed_on_its_feeder(
    hung: Recorded, tmp_path: Path, name: str, kinds: tuple[Kind, ...], cause: Cause
) -> None:
    trace = hung(name)
    found = explain_part(trace, np.concatenate([trace.events, *result(trace.events, *kinds)]), tmp_path)
    assert found.cause is cause
    who = [link.who.partition(" (pid ")[0] for link in found.links]
    assert who == ["main", *(["the pin thread"] if name == "pinned" else []), "the feeder thread of worker 0"]
    assert "batch 4" in found.links[-1].what


def test_a_circle_is_found(hung: Recorded, tmp_path: Path) -> None:
    """Main waits for a worker to exit, the worker for its feeder thread to send, and that for main to read."""
    events = hung("blocks").events
    end = {"task": -1, "time": events["time"][-1]}
    of_main = events[events["kind"] == Kind.ASKED][:1]
    of_worker = events[(events["kind"] == Kind.FETCH_BEGIN) & (events["task"] == 4)]
    more = [
        *result(events, Kind.PUT, Kind.SEND_BEGIN, Kind.SENT),
        edited(of_main, kind=Kind.SHUTDOWN_BEGIN, **end),
        edited(of_main, kind=Kind.JOIN_BEGIN, worker=0, **end),
        edited(of_worker, kind=Kind.WORKER_END, **end),
        edited(of_worker, kind=Kind.CLOSED, queue=Queue.RESULT, **end),
    ]
    found = explain_part(hung("blocks"), np.concatenate([events, *more]), tmp_path)
    assert found.cause is Cause.CIRCLE
    who = [link.who.partition(" (pid ")[0] for link in found.links]
    assert who == ["main", "worker 0", "the feeder thread of worker 0"]


def edited(events: np.ndarray, **fields: int) -> np.ndarray:
    """These events with other fields."""
    events = events.copy()
    for name, value in fields.items():
        events[name] = value
    return events


def explain_part(trace: tracing.Trace, events: np.ndarray, directory: Path, pids: dict[int, int] | None = None) -> Hang:
    changed = part(trace, events, directory / "trace", pids or living(trace))
    found = explain(changed, later(changed))
    assert found is not None
    return found


def living(trace: tracing.Trace) -> dict[int, int]:
    """The pid of each process of a trace -> that of a living one: for main this process, for workers its parent."""
    return {actor.pid: os.getpid() if actor.role == "main" else os.getppid() for actor in reversed(trace.actors)}


def gone() -> int:
    """A pid without a process."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def part(
    trace: tracing.Trace,
    events: np.ndarray,
    directory: Path,
    pids: dict[int, int] | None = None,
    room: int = 0,
) -> tracing.Trace:
    """A trace with `events`, at their times. With `pids` its processes have these, and have not closed their files."""
    events = events.copy()
    pid_events = np.isin(events["kind"], [Kind.WORKER_BEGIN, Kind.WORKER_STARTED])
    if pids:
        events["value"][pid_events] = [pids[pid] for pid in events["value"][pid_events].tolist()]
    copy(trace, events, directory)
    owners = np.array([actor.pid for actor in trace.actors])[events["actor"]]
    for number, (old, new) in enumerate((pids or {}).items() if pids else ((pid, pid) for pid in set(owners.tolist()))):
        path = fmt.events_file(directory, old, 0)
        if not path.exists():
            continue
        data = np.frombuffer(path.read_bytes()[fmt.HEADER_SIZE :], fmt.RECORD_DTYPE).copy()
        data["time"] = events["time"][owners == old]
        header = fmt.read_header(path)
        assert header is not None
        header = header._replace(pid=new, start=0)
        if pids:
            data = np.concatenate([data, np.zeros(room, fmt.RECORD_DTYPE)])
            header = header._replace(used=-1, capacity=len(data))
        text = fmt.text_file(path).read_bytes()
        for each in path, fmt.text_file(path):
            each.unlink()
        path = fmt.events_file(directory, new, number if new == os.getppid() else 0)
        path.write_bytes(fmt.HEADER.pack(*header).ljust(fmt.HEADER_SIZE, b"\0") + data.tobytes())
        fmt.text_file(path).write_bytes(text)
    return tracing.load(directory)
