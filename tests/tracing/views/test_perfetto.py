"""The file is walked, and each rule that a viewer expects of it is checked: see views.md, "Perfetto export"."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracing
from minidl.events import Kind, Queue
from tests.tracing.loads import LOADS
from tests.tracing.traces import begin, copy, steady
from tracing.views.export import perfetto

pytestmark = pytest.mark.timeout(60)
Recorded = Callable[[str], tracing.Trace]
Record = dict[str, Any]


def ns(us: float) -> int:
    """A time of the file as a viewer takes it: fractions of a ns are cut off."""
    return int(us * 1000)


class Walked:
    """A written file, its records sorted by type."""

    def __init__(self, trace: tracing.Trace, path: Path) -> None:
        perfetto.write(trace, path)
        self.trace = trace
        content = json.loads(path.read_text())
        self.records: list[Record] = content["traceEvents"]
        by_phase: dict[str, list[Record]] = defaultdict(list)
        for record in self.records:
            by_phase[record["ph"]].append(record)
        self.names, self.slices, self.instants, self.counts = (by_phase[phase] for phase in "MXiC")
        self.flow_parts = by_phase["s"] + by_phase["t"] + by_phase["f"]
        assert set(by_phase) <= set("MXiCstf")
        self.tracks: dict[tuple[int, int], list[Record]] = defaultdict(list)
        for each in sorted(self.slices, key=lambda each: (each["ts"], -each["dur"])):
            self.tracks[each["pid"], each["tid"]].append(each)

    def kind(self, record: Record) -> Kind:
        """Of the event that a record begins with."""
        return Kind(self.trace.events["kind"][record["args"]["event"]])

    def flows(self) -> dict[int, list[Record]]:
        found = defaultdict(list)
        for part in sorted(self.flow_parts, key=lambda part: part["ts"]):
            found[part["id"]].append(part)
        return found

    def around(self, part: Record) -> list[Record]:
        """The slices of its own track that a flow's part lies strictly in, the outermost first."""
        at = ns(part["ts"])
        track = self.tracks[part["pid"], part["tid"]]
        return [each for each in track if ns(each["ts"]) < at < ns(each["ts"]) + ns(each["dur"])]


def check_rules(walked: Walked) -> None:
    """Every rule that holds for any trace."""
    for check in (check_names, check_slices, check_flows, check_times):
        check(walked)


def check_names(walked: Walked) -> None:
    """Each used track has one name; a thread belongs to one process."""
    given = Counter((each["name"], each["pid"], each["tid"]) for each in walked.names)
    assert set(given.values()) == {1}
    processes = {each["pid"] for each in walked.names if each["name"] == "process_name"}
    threads = {(each["pid"], each["tid"]) for each in walked.names if each["name"] == "thread_name"}
    assert len({tid for _, tid in threads}) == len(threads) == len(walked.trace.actors)
    used = {(each["pid"], each["tid"]) for each in walked.records if each["ph"] != "M"}
    assert used <= threads and {pid for pid, _ in threads} == processes


def check_slices(walked: Walked) -> None:
    """Longer than zero; each put and each get is one; of two slices of a track one lies in the other, or they are
    apart, also when a viewer cuts off fractions of a ns."""
    assert all(ns(each["dur"]) > 0 for each in walked.slices)
    for track in walked.tracks.values():
        open_until: list[int] = []
        for each in track:
            begin, end = ns(each["ts"]), ns(each["ts"]) + ns(each["dur"])
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1], each
            open_until.append(end)
    kinds = walked.trace.events["kind"]
    puts = Counter(each["args"]["event"] for each in walked.slices if each["name"].startswith("put "))
    assert puts == Counter(np.flatnonzero(kinds == Kind.PUT).tolist())
    gets = Counter(got_of(walked, each) for each in walked.slices if each["name"].startswith("get "))
    del gets[None]
    assert gets == Counter(np.flatnonzero(kinds == Kind.GOT).tolist())


def got_of(walked: Walked, get: Record) -> int | None:
    """The position of its GOT, with which it ends, or begins where there is no pipe; None if it was not completed."""
    bounds = get["args"]["event"], get["args"]["until"]
    return next((k for k in bounds if isinstance(k, int) and walked.trace.events["kind"][k] == Kind.GOT), None)


def check_flows(walked: Walked) -> None:
    """One for each batch that was put on an index_queue: it begins there, and ends in the yield if there is one. Its
    parts lie in slices of their own tracks that are of this batch, and are equal in id, name and category."""
    tasks = walked.trace.tasks
    expected = Counter(bool(row["yielded"] >= 0) for row in tasks[tasks["index_put"] >= 0])
    found = Counter()
    seen = set()
    for number, parts in walked.flows().items():
        assert isinstance(number, int) and number > 0
        assert len({(part["name"], part["cat"], part["id"]) for part in parts}) == 1
        within = [walked.around(part)[-1] for part in parts]
        phases = "".join(part["ph"] for part in parts)
        ended = phases.endswith("f")
        assert phases == "s" + "t" * (len(phases) - 1 - ended) + "f" * ended
        assert [part.get("bp") for part in parts] == [None] * (len(parts) - ended) + ["e"] * ended
        batches = {tuple(each["args"][name] for name in ("loader", "epoch")) for each in within}
        named = {each["name"].split()[-1] for each in within}
        assert len(batches) == len(named) == 1, within
        assert within[0]["args"]["queue"] == "index_queue" and within[0]["name"].startswith("put ")
        assert not ended or walked.kind(within[-1]) == Kind.YIELDED
        seen.add((*batches.pop(), named.pop()))
        found[ended] += 1
    assert found == expected and len(seen) == sum(found.values())


def check_times(walked: Walked) -> None:
    """Each record has the time of its event: µs with their fraction, counted from the first event."""
    trace = walked.trace
    for each in walked.slices + walked.instants:
        event = trace.events[each["args"]["event"]]
        assert abs(each["ts"] * 1000 - int(event["time"] - trace.start)) < 1
        if isinstance(until := each["args"].get("until"), int):
            length = int(trace.events["time"][until] - event["time"])
            assert 0 <= length - each["dur"] * 1000 <= perfetto.STEP
    assert min(each["ts"] for each in walked.slices) == 0.0 or trace.events["kind"][0] not in perfetto.INSTANTS


# ---- real loads


@pytest.mark.parametrize("name", [name for name in LOADS if name != "spawned"])
def test_every_rule_holds_on_real_loads(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """However few records are made at once."""
    monkeypatch.setattr(perfetto, "AT_ONCE", 7)
    monkeypatch.setattr(perfetto.events_of, "__defaults__", (7,))
    walked = Walked(recorded(name), tmp_path / "trace.json")
    check_rules(walked)
    assert len(walked.slices) > 30
    assert bool(walked.flow_parts) == (name != "serial")
    for each in walked.slices:
        if each["name"].startswith("fetch") and name == "nested":  # a loader in the dataset fetches meanwhile
            begin, end = (walked.trace.events[each["args"][bound]] for bound in ("event", "until"))
            assert end["kind"] == Kind.FETCH_END
            assert all(begin[field] == end[field] for field in ("loader", "epoch", "task"))


@pytest.mark.parametrize("name", ["dying", "nested"])
def test_every_rule_holds_on_a_trace_cut_anywhere(recorded: Recorded, tmp_path: Path, name: str) -> None:
    whole = recorded(name)
    for length in range(1, len(whole), max(1, len(whole) // 12)):
        check_rules(Walked(copy(whole, whole.events[:length], tmp_path / f"{length}.trace"), tmp_path / "trace.json"))


def test_a_slice_without_an_end_lasts_until_the_end_of_the_trace(recorded: Recorded, tmp_path: Path) -> None:
    """So a hang looks like one: main waits to the right end of the picture."""
    whole = recorded("pinned")
    waits = np.flatnonzero((whole.events["kind"] == Kind.WAIT) & (whole.events["queue"] == Queue.DATA))
    main = whole.events["actor"][waits[0]]
    others = [k for k in range(len(whole)) if k <= waits[0] or whole.events["actor"][k] != main]
    trace = copy(whole, whole.events[others], tmp_path / "hangs.trace")
    walked = Walked(trace, tmp_path / "trace.json")
    [last] = [each for each in walked.slices if each["name"] == "wait" and each["args"]["event"] == waits[0]]
    assert last["args"]["until"] == "the end of the trace"
    assert abs(last["ts"] + last["dur"] - trace.duration / 1000) < 0.1


def test_tracks_have_the_names_of_their_threads(recorded: Recorded, tmp_path: Path) -> None:
    walked = Walked(recorded("pinned"), tmp_path / "trace.json")
    named = {name: [each["args"]["name"] for each in walked.names if each["name"] == name] for name in (
        "process_name", "thread_name")}  # fmt: skip
    assert sorted(named["process_name"]) == ["main", "worker 0", "worker 1"]
    assert {"pin thread", "feeder of index_queue 0", "feeder of index_queue 1"} <= set(named["thread_name"])
    assert named["thread_name"].count("feeder of worker_result_queue") == 2
    two = Walked(recorded("two_at_once"), tmp_path / "trace.json")
    workers = [each["args"]["name"] for each in two.names if each["name"] == "process_name"]
    assert len(workers) == 1 + 1 + 1 + 2 and len({name for name in workers if "loader" in name}) == 3


def test_the_flow_of_a_batch_passes_through_every_thread_that_held_it(recorded: Recorded, tmp_path: Path) -> None:
    walked = Walked(recorded("pinned"), tmp_path / "trace.json")
    way = ["put", "pickle", "get", "fetch", "put", "pickle", "get", "pin", "put", "get", "training step"]
    for parts in walked.flows().values():
        assert [walked.around(part)[-1]["name"].rsplit(" ", 1)[0] for part in parts] == way


def test_deaths_errors_and_steps_are_instants(recorded: Recorded, tmp_path: Path) -> None:
    walked = Walked(recorded("dying"), tmp_path / "trace.json")
    named = Counter(each["name"] for each in walked.instants)
    kinds = Counter(recorded("dying").events["kind"].tolist())
    noted = Kind.WORKER_DIED, Kind.TASK_LOST, Kind.ERROR_RAISED, Kind.EPOCH_BEGIN, Kind.DONE_SET, Kind.SHUTDOWN_END
    for kind in noted:
        assert named[kind.name.lower().replace("_", " ")] == kinds[kind] > 0
    [died] = [each for each in walked.instants if each["name"] == "worker died"]
    assert "killed by signal" in died["args"]["text"] and died["args"]["worker"] == 1
    [worker] = {each["pid"] for each in walked.slices if each["args"].get("worker") == 1 and "fetch" in each["name"]}
    ends = [each["ts"] + each["dur"] for each in walked.slices if each["pid"] == worker]
    assert max(ends) <= died["ts"] + 1  # the dead do nothing


@pytest.mark.parametrize("name", ["in_order", "pinned", "persistent", "dying"])
def test_the_counters_are_what_the_state_holds(recorded: Recorded, tmp_path: Path, name: str) -> None:
    trace = recorded(name)
    walked = Walked(trace, tmp_path / "trace.json")
    curves = defaultdict(lambda: ([-1], [0]))
    for each in walked.counts:
        times, depths = curves[each["name"]]
        times.append(round(each["ts"] * 1000))
        depths.append(next(iter(each["args"].values())))
    deepest = 0
    times = trace.events["time"]
    for k in np.flatnonzero(times[1:] > times[:-1])[:: max(1, len(trace) // 100)].tolist():
        [loader] = trace.state(k).loaders
        expected = {f"index_queue {w}": len(queue) for w, queue in enumerate(loader.index_queues)}
        expected |= {f"worker_result_queue {w}": len(queue) for w, queue in enumerate(loader.result_queues)}
        expected |= {"data_queue": len(loader.data_queue), "reorder buffer": len(loader.reorder_buffer)}
        if loader.alive:
            for queue, depth in expected.items():
                at, depths = curves[queue]
                assert depths[np.searchsorted(at, int(times[k]) - trace.start, "right") - 1] == depth, (queue, k)
                deepest = max(deepest, depth)
    assert deepest > 0 and all(depths[-1] == 0 for _, depths in curves.values())


# ---- long ones


@pytest.mark.slow
def test_a_long_trace_is_streamed(tmp_path: Path) -> None:
    """100,000 events: in seconds, and with less memory than a list of them would need."""
    length = steady(tmp_path / "long.trace", tasks=6_000)
    assert length > 100_000
    trace = tracing.load(tmp_path / "long.trace")
    started = time.process_time()
    perfetto.write(trace, tmp_path / "long.json")
    assert time.process_time() - started < 7
    short = tracing.load(tmp_path / "long.trace")
    tracemalloc.start()
    count = sum(1 for _ in zip(perfetto.records(short), range(20_000), strict=False))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000 and peak < 60 * len(trace)  # bytes; a single record has some 500
    with open(tmp_path / "long.json") as file:
        assert sum(1 for line in file if '"ph":"f"' in line) == 6_000


def test_an_empty_trace_makes_an_empty_picture(tmp_path: Path) -> None:
    walked = Walked(tracing.load(begin(tmp_path / "empty.trace")), tmp_path / "trace.json")
    assert walked.records == []
