"""The file is walked, and each rule that a viewer expects of it is checked: see views.md, "Perfetto export"."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracing
from minidl.events import Kind
from tests.tracing.loads import LOADS, Recorded
from tests.tracing.traces import copy
from tracing.views.export import perfetto, slices

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
    assert set(given.values()) <= {1}
    processes = {each["pid"] for each in walked.names if each["name"] == "process_name"}
    threads = {(each["pid"], each["tid"]) for each in walked.names if each["name"] == "thread_name"}
    assert len({tid for _, tid in threads}) == len(threads) == len(walked.trace.actors)
    used = {(each["pid"], each["tid"]) for each in walked.records if each["ph"] != "M"}
    assert used <= threads and {pid for pid, _ in threads} == processes


def check_slices(walked: Walked) -> None:
    """Longer than zero; of two slices of a track one lies in the other, or they are
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
        assert not ended or within[-1]["name"].startswith("training step ")
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
            assert 0 <= length - each["dur"] * 1000 <= slices.STEP
        elif each["ph"] == "X" and not np.isin(trace.events["kind"], [Kind.WORKER_DIED, Kind.WORKER_JOINED]).any():
            assert each["ts"] + each["dur"] > trace.duration / 1000 - 0.1  # to its end: so a hang is seen


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


@pytest.mark.parametrize("name", ["dying", "nested"])
def test_every_rule_holds_on_a_trace_cut_anywhere(recorded: Recorded, tmp_path: Path, name: str) -> None:
    """Before its first event, too."""
    whole = recorded(name)
    for length in range(0, len(whole), max(1, len(whole) // 12)):
        check_rules(Walked(copy(whole, whole.events[:length], tmp_path / f"{length}.trace"), tmp_path / "trace.json"))


def test_tracks_have_the_names_of_their_threads(recorded: Recorded, tmp_path: Path) -> None:
    named = defaultdict(list)
    for each in Walked(recorded("pinned"), tmp_path / "trace.json").names:
        named[each["name"]].append(each["args"].get("name"))
    feeders = [f"feeder {queue} {worker}" for queue in ("index", "result") for worker in (0, 1)]
    assert sorted(named["process_name"]) == ["main", "worker 0", "worker 1"]
    assert sorted(set(named["thread_name"]) - {"main", "worker 0", "worker 1"}) == [*feeders, "pin thread"]


def test_the_flow_of_a_batch_passes_through_every_thread_that_held_it(recorded: Recorded, tmp_path: Path) -> None:
    walked = Walked(recorded("pinned"), tmp_path / "trace.json")
    way = ["put", "pickle", "get", "fetch", "put", "pickle", "get", "pin", "put", "get", "training step"]
    for parts in walked.flows().values():
        assert [walked.around(part)[-1]["name"].rsplit(" ", 1)[0] for part in parts] == way


def test_deaths_errors_and_steps_are_instants(recorded: Recorded, tmp_path: Path) -> None:
    walked = Walked(recorded("dying"), tmp_path / "trace.json")
    named = Counter(each["name"] for each in walked.instants)
    kinds = Counter(recorded("dying").events["kind"].tolist())
    for kind in (Kind.WORKER_DIED, Kind.TASK_LOST, Kind.ERROR_RAISED, Kind.EPOCH_BEGIN, Kind.SHUTDOWN_END):
        assert named[kind.name.lower().replace("_", " ")] == kinds[kind] > 0
    [died] = [each for each in walked.instants if each["name"] == "worker died"]
    assert "killed by signal" in died["args"]["text"] and died["args"]["worker"] == 1
    [worker] = {each["pid"] for each in walked.slices if "fetch" in each["name"] and each["args"]["worker"] == 1}
    assert max(each["ts"] + each["dur"] for each in walked.slices if each["pid"] == worker) <= died["ts"] + 1


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
