"""What is drawn is what the trace says: artists are compared with `trace.state(k)`, `trace.tasks` and the events.

Artists are found by their gid: "worker 0 fetch" is a collection of bars, "data_queue depth" a stepped line.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from rich.console import Console

import tracing
from minidl.events import Kind, Queue
from minidl.world.simulated import simulate
from tests.minidl.simulated.programs import TORCHS_WAY, load
from tests.tracing.loads import Recorded
from tests.tracing.traces import steady
from tracing.trace.state import LoaderState, MainStatus, QueueState, SlotStatus
from tracing.views.live.live import watch
from tracing.views.timeline import colours, timeline, window
from tracing.views.timeline.spans import LOOK, Look

LOADS = ("in_order", "pinned", "persistent_stream", "serial", "two_at_once", "failing", "dying", "slots")


# ---- reading a figure


def find(figure: Figure, gid: str) -> list[Artist]:
    """The artists with this gid."""
    return figure.findobj(lambda artist: artist.get_gid() == gid)


class Drawn:
    """A figure's bars and lines, looked up at a time (ns)."""

    def __init__(self, figure: Figure, trace: tracing.Trace) -> None:
        self.figure, self.trace = figure, trace
        [unit] = re.findall(r"\(([mµ]?s)\)", figure.axes[-1].get_xlabel())
        self.unit = {"µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
        # What lies under digits is no bar: each lane that has such digits has its own.
        self.bars = {gid: self._bars(gid) for gid in self.gids(PolyCollection) - {"ground of digits"}}
        self.lines = {gid: find(figure, gid)[0].get_xydata().T for gid in self.gids(Line2D) if gid.endswith("depth")}

    def gids(self, kind: type) -> set[str]:
        return {str(artist.get_gid()) for artist in self.figure.findobj(kind) if artist.get_gid()}

    def _bars(self, gid: str) -> tuple[np.ndarray, np.ndarray]:
        """((n, 4) left, right, low, high; (n, 4) colours)"""
        [collection] = find(self.figure, gid)
        edges = [(*path.get_extents().intervalx, *path.get_extents().intervaly) for path in collection.get_paths()]
        fills = collection.get_facecolor()
        fills = np.broadcast_to(fills, (len(edges), 4)) if len(fills) == 1 else fills
        return np.array(edges).reshape(-1, 4), fills

    def x(self, time: float) -> float:
        return (time - self.trace.start) / self.unit

    def at(self, gid: str, time: float) -> list[tuple[float, tuple[float, ...]]]:
        """(low edge, colour) of each bar that covers a time."""
        if gid not in self.bars:
            return []
        edges, colours = self.bars[gid]
        here = (edges[:, 0] <= self.x(time)) & (self.x(time) < edges[:, 1])
        return [(edges[i, 2], tuple(colours[i])) for i in np.flatnonzero(here)]

    def looks(self, lane: str, time: float) -> set[Look]:
        return {look for look in Look if self.at(f"{lane} {look.name.lower()}", time)}

    def depth(self, name: str, time: float) -> float:
        times, depths = self.lines[f"{name} depth"]
        return depths[np.searchsorted(times, self.x(time), "right") - 1]


def sampled_states(trace: tracing.Trace, drawn: list[int], count: int = 100) -> Iterator[tuple[float, LoaderState]]:
    """(a time at which this state holds, the state of an iterator that is drawn), all over the trace."""
    times = trace.events["time"]
    moments = np.flatnonzero(times[1:] - times[:-1] > 1000)  # so far apart that float64 tells them apart
    for k in np.unique(moments[np.linspace(0, len(moments) - 1, count).astype(int)]).tolist():
        for state in trace.state(k).loaders:
            if state.iterator in drawn:
                yield (times[k] + times[k + 1]) / 2, state


# ---- the picture and the state


@pytest.mark.parametrize("name", LOADS)
def test_every_lane_and_queue_shows_what_the_state_says(recorded: Recorded, name: str) -> None:
    trace = recorded(name)
    view = window.View(trace)
    drawn = Drawn(timeline(trace), trace)
    seen, deepest = set[Any](), 0
    for time_, state in sampled_states(trace, [each.number for each in view.iterators]):
        seen |= check_lanes(drawn, time_, state)
        if state.alive and state.workers:  # else it has no queues, or they are gone
            check_queues(drawn, time_, state)
            deepest = max(deepest, *map(len, state.index_queues))
            seen |= check_slots(drawn, time_, state)
    assert len(seen) >= 3 and (deepest >= 1 or name == "serial")
    assert name != "slots" or {(SlotStatus.LENT, 4), (SlotStatus.FILLED, 1)} <= seen
    assert name != "serial" or (len(drawn.figure.axes) == 1 and "no workers" in all_text(drawn.figure))


def check_lanes(drawn: Drawn, time_: float, state: LoaderState) -> set[Look]:
    """What is seen."""
    statuses = {"main": state.main.status, "pin thread": state.pin_thread.status}
    # Before main asks for it (since = 0) there is no process yet, and so nothing to draw.
    statuses |= {f"worker {worker.worker}": worker.status for worker in state.workers if worker.since}
    seen = set()
    for lane, status in statuses.items():
        expected = {LOOK[status]} - {Look.NOTHING}
        if status is MainStatus.TRAINING and state.yielded == 0:
            expected = set()  # the loop has no batch yet
        assert drawn.looks(lane, time_) == expected, (lane, status, state)
        seen |= expected
    for worker in state.workers:
        if LOOK[worker.status] in (Look.FETCH, Look.COLLATE):
            [(_, colour)] = drawn.at(f"worker {worker.worker} {LOOK[worker.status].name.lower()}", time_)
            assert colour == to_rgba(colours.of_batch(worker.task))
    return seen


def check_queues(drawn: Drawn, time_: float, state: LoaderState) -> None:
    fifos = {f"index_queue {worker}": queue for worker, queue in enumerate(state.index_queues)}
    if "data_queue depth" in drawn.lines:
        fifos["data_queue"] = state.data_queue
    for queue, content in fifos.items():
        assert drawn.depth(queue, time_) == len(content), (queue, state)
        assert sorted(drawn.at(f"{queue} boxes", time_)) == [*enumerate(colours_of(content))]
    assert drawn.depth("worker_result_queue", time_) == sum(map(len, state.result_queues))
    assert len(drawn.at("worker_result_queue boxes", time_)) == sum(map(len, state.result_queues))
    assert drawn.depth("reorder buffer", time_) == len(state.reorder_buffer)
    stored = {colour for _, colour in drawn.at("reorder buffer boxes", time_)}
    assert stored == {to_rgba(colours.of_batch(task)) for task in state.reorder_buffer}


def check_slots(drawn: Drawn, time_: float, state: LoaderState) -> set[tuple[SlotStatus, int]]:
    """How many slots of a worker are in which status."""
    seen = set()
    for worker in state.workers:
        for words, status, alpha in ("filled", SlotStatus.FILLED, 0.35), ("lent", SlotStatus.LENT, 1.0):
            batches = {slot: each.task for slot, each in enumerate(worker.slots) if each.status is status}
            shown = drawn.at(f"slots of worker {worker.worker} {words}", time_)
            expected = {slot: to_rgba(colours.of_batch(task), alpha) for slot, task in batches.items()}
            assert dict(shown) == expected and len(shown) == len(expected), (status, state)
            seen |= {(status, len(batches))}
    return seen


def colours_of(queue: QueueState) -> list[tuple[float, ...]]:
    """Upwards from the one that is taken next; a message without a task is grey."""
    return [to_rgba(colours.of_batch(label if isinstance(label, int) else -1)) for label in queue.messages]


def test_each_number_stands_in_the_colour_of_its_batch(recorded: Recorded) -> None:
    """In lanes, queues and slots."""
    found = 0
    for axes in timeline(recorded("slots"), batches=(0, 8), epoch=0).axes:
        bars = [each for each in axes.findobj(PolyCollection) if len(each.get_facecolor()) == len(each.get_paths())]
        for text in (text for text in axes.texts if text.get_text().isdigit()):
            under = [(each, [path.contains_point(text.get_position()) for path in each.get_paths()]) for each in bars]
            fills = {tuple(each.get_facecolor()[number]) for each, hit in under for number in np.flatnonzero(hit)}
            assert to_rgba(colours.of_batch(int(text.get_text()))) in fills
            found += 1
    assert found > 20


@pytest.mark.parametrize("name", ["in_order", "pinned"])
def test_summed_up_shares_and_depths_are_those_of_the_trace(
    recorded: Recorded, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "MOST_SINGLE_BATCHES", 5)
    trace = recorded(name)
    figure, stops = timeline(trace), trace.events[trace.events["task"] < -1]
    unit = Drawn(figure, trace).unit
    for worker in (0, 1):
        mine = trace.tasks[trace.tasks["worker"] == worker]
        # The status FETCHING lasts up to the begin of collate; a lane is 0.8 high.
        fetching = int((mine["collate_begin"] - mine["fetch_begin"]).sum())
        assert area(figure, f"worker {worker} fetch") * unit / 0.8 == pytest.approx(fetching, rel=1e-6)
        [line] = find(figure, f"index_queue {worker} mean")
        stop = stops["time"][(stops["queue"] == Queue.INDEX) & (stops["worker"] == worker)]  # it lies in the queue, too
        in_queue = int((mine["index_got"] - mine["index_put"]).sum() + np.ptp(stop))
        x, y = line.get_xydata().T
        assert (np.diff(x) * y[:-1]).sum() * unit == pytest.approx(in_queue, rel=1e-6)


def area(figure: Figure, gid: str) -> float:
    """Of filled polygons (the shoelace formula)."""
    [collection] = find(figure, gid)
    corners = [path.vertices.T for path in collection.get_paths()]
    return sum(abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2 for x, y in corners)


# ---- the way of one batch, and marks


def arrows(figure: Figure) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    found = [artist for artist in find(figure, "way") if isinstance(artist, Annotation)]
    return [(arrow.get_position(), arrow.xy) for arrow in found]


def test_arrows_lead_through_every_hop(recorded: Recorded) -> None:
    trace = recorded("pinned")
    figure = timeline(trace, follow=2)
    task = trace.tasks[trace.tasks["task"] == 2][0]
    x = Drawn(figure, trace).x
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    loading, pin, worker = (labels.index(each) for each in ("in the loader", "pin thread", f"worker {task['worker']}"))
    expected = [
        ((x(task["index_put"]), loading), (x(task["index_got"]), worker)),
        ((x(task["result_put"]), worker), (x(task["result_got"]), pin)),
        ((x(task["data_put"]), pin), (x(task["data_got"]), loading)),
    ]
    assert np.array(arrows(figure)[:3]) == pytest.approx(np.array(expected))
    assert arrows(figure)[-1][1][0] == pytest.approx(x(task["yielded"]))
    assert "Batch 2:" in all_text(figure)


def test_the_batch_that_waited_longest_in_the_reorder_buffer_is_followed(recorded: Recorded) -> None:
    trace = recorded("in_order")
    early = trace.tasks[trace.tasks["stored"] >= 0]
    longest = early[np.argmax(early["released"] - early["stored"])]
    assert f"batch {longest['task']}'s path" in all_text(timeline(trace))
    assert not arrows(timeline(trace, follow=False))


def test_deaths_errors_epochs_and_the_shutdown_are_marked(recorded: Recorded) -> None:
    figure = timeline(recorded("persistent"))
    for words in ("pin thread joined", "done event set", "worker 0 joined", "worker 1 joined", "shutdown complete"):
        assert find(figure, f"mark {words}")
    assert all(find(figure, f"name epoch {number}") for number in range(3))
    trace = recorded("dying")
    figure = timeline(trace)
    [died] = trace.events[trace.events["kind"] == Kind.WORKER_DIED]
    [mark] = find(figure, "mark worker 1 died (SIGKILL)")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert mark.get_xdata()[0] == pytest.approx(Drawn(figure, trace).x(died["time"]))
    assert mark.get_ydata()[0] == labels.index("worker 1") and mark.get_marker() == "X"
    assert find(figure, "name worker 1 died (SIGKILL)") and find(figure, "mark RuntimeError raised")


@pytest.mark.parametrize(
    ("process", "lane", "words"), [(0, "main", "main is killed"), (1, "worker 0", "worker 0 died")]
)
def test_a_killed_process_does_nothing_from_then_on(process: int, lane: str, words: str) -> None:
    """No event shows its death; the simulated world knows of it. It is marked as killed, or as died if main notices."""
    trace = tracing.load(simulate(load, schedule=f"60.k{process}", draws=False, environment=TORCHS_WAY))
    figure, [killed_at] = timeline(trace), trace.about["killed"].values()
    drawn = Drawn(figure, trace)
    marked = [mark for mark in figure.findobj(Line2D) if str(mark.get_gid()).startswith(f"mark {words}")]
    assert len(marked) == 1 and not (process and find(figure, "mark worker 0 is killed"))
    assert process or marked[0].get_xdata()[0] == pytest.approx(drawn.x(killed_at))
    bars = [edges for gid, (edges, _) in drawn.bars.items() if gid.startswith(lane) and len(edges)]
    assert max(edges[:, 1].max() for edges in bars) == pytest.approx(drawn.x(killed_at))
    assert ("after main was killed" in all_text(figure)) == (lane == "main")


# ---- what part is drawn


def test_a_note_goes_through_everything_at_its_event(recorded: Recorded) -> None:
    trace = recorded("pinned")
    event = int(np.flatnonzero(trace.events["kind"] == Kind.YIELDED)[3])
    figure = timeline(trace, notes=[(event, "look here")])
    at = (int(trace.events["time"][event]) - trace.start) / 1e6
    for axes in figure.axes:
        assert [line for line in find(axes, "note") if np.allclose(line.get_xdata(), at)], axes
    assert find(figure, "name look here")
    assert f"batch {trace.events['task'][event]}'s path" in all_text(figure)  # the one that the note is about


@pytest.mark.parametrize(("batches", "words"), [((3, 6), "batches 3 to 5,"), ((3, 4), "batch 3,"), ((3, 900), "to {}")])
def test_a_range_of_batches_is_drawn_and_named(recorded: Recorded, batches: tuple[int, int], words: str) -> None:
    trace = recorded("in_order")
    figure, chosen = timeline(trace, batches=batches), trace.tasks[slice(*batches)]
    left, right = map(Drawn(figure, trace).x, (chosen["keys_begin"].min(), chosen["asked"].max()))
    assert figure.axes[0].get_xlim() == pytest.approx((left, right))
    assert words.format(trace.tasks["task"].max()) in all_text(figure) and "batches yielded" not in all_text(figure)
    assert f"{len(trace.tasks)} batches yielded in" in all_text(timeline(trace))


@pytest.mark.parametrize("name", ["persistent", "dying"])
def test_title_report_and_live_view_mean_the_same_by_mains_time(recorded: Recorded, name: str) -> None:
    """One computation, one vocabulary."""
    trace = recorded(name)
    spent = tracing.report(trace).loaders[0].main_ns
    spent["work"] = sum(spent[each] for each in ("drawing", "taking", "loading", "handling"))
    words = {"startup": "start-up", "training": "in the training step", "work": "at work in the loader"}
    words |= {"waiting": "waiting for batches", "shutdown": "shutdown"}
    shares = {words[each]: round(100 * spent[each] / trace.duration) for each in words}
    said = ", ".join(f"{share}% {what}" for what, share in shares.items() if share)
    [shown] = re.findall(r"Main's time: (.*)\.", all_text(timeline(trace)))
    assert set(said.split(", ")) <= set(shown.split(", ")) != {""}
    out = io.StringIO()
    watch(trace.path, console=Console(file=out), speed=1e6)
    assert f"main's time: {shown}" in out.getvalue().splitlines()[-1]


def test_a_stretch_of_time_can_be_drawn(recorded: Recorded) -> None:
    trace = recorded("pinned")
    begin, end = trace.tasks["fetch_begin"][1], trace.tasks["yielded"][4]
    drawn = Drawn(timeline(trace, start=(begin - trace.start) / 1e9, end=(end - trace.start) / 1e9), trace)
    left, right = drawn.figure.axes[0].get_xlim()
    assert (left, right) == pytest.approx((drawn.x(begin), drawn.x(end)), rel=1e-6)


def test_a_long_trace_is_summed_up(tmp_path: Path) -> None:
    figure = timeline(steady(tmp_path, 15_000, workers=16))
    figure.savefig(io.BytesIO(), format="png", dpi=50)
    assert "worker 15" in all_text(figure)
    assert len(figure.findobj()) < 2000  # bins, not batches


def all_text(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(match=lambda artist: hasattr(artist, "get_text")))
