"""The live view: what is where, that nothing overflows, and that the terminal is given back."""

from __future__ import annotations

import codecs
import contextlib
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment

import minidl
import tracing
from minidl.events import Kind, Queue
from tests.tracing.cli.terminal import ROOT, in_terminal, read_all, read_until, resize
from tests.tracing.hanging import hanging
from tests.tracing.loads import LOADS, Numbers
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.stuck_moments import Ending
from tracing.recording import file_format as fmt
from tracing.recording.trace_directory import in_progress
from tracing.trace.state import (
    LoaderState,
    MainState,
    MainStatus,
    PinState,
    PinStatus,
    QueueState,
    SlotStatus,
    State,
    TaskState,
    TaskStatus,
    WorkerState,
    WorkerStatus,
)
from tracing.trace.trace import Actor
from tracing.views.live.live import watch
from tracing.views.live.panels import HELP, plain, render
from tracing.views.live.playback import CHECK_PERIOD, Live, Replay
from tracing.views.live.recent import _SAID, Recent, RecentEvent, recent
from tracing.views.terminal.batch_cells import row_of_cells
from tracing.views.terminal.keyboard import names_of
from tracing.views.terminal.layout import ASCII, Frame, fit, lines_of

pytestmark = pytest.mark.timeout(60)

SIZES = [(80, 24), (120, 40), (200, 60)]

LEAVE = "\x1b[?1049l"  # back to the terminal's first screen
SHOW_CURSOR = "\x1b[?25h"
Recorded = Callable[[str], tracing.Trace]


def busy_state(workers: int, pin: bool, waiting: int) -> State:
    """A loader in full swing: `waiting` messages in every queue, batches 1000 and up."""
    ids = iter(range(1000, 100_000))
    queues = [QueueState([next(ids) for _ in range(waiting)], [next(ids)]) for _ in range(2 * workers + 1)]
    crew = [WorkerState(w, 4000 + w, WorkerStatus.STREAM_ENDED, next(ids), w * 10**7) for w in range(workers)]
    early = [next(ids) for _ in range(waiting)] if workers else []
    gap = 999 if early else -1
    loader = LoaderState(
        loader=1, iterator=0, epoch=12, num_workers=workers, alive=True, send_idx=5000, rcvd_idx=999,
        tasks_outstanding=500, yielded=999, index_queues=queues[:workers], workers=crew,
        result_queues=queues[workers : 2 * workers],
        pin_thread=PinState(PinStatus.PASSING_ON if pin else PinStatus.NONE, next(ids) if pin else -1, 0),
        data_queue=queues[-1] if pin else QueueState(), reorder_buffer=early, waits_for_task=gap,
        task_info={gap: TaskState(0, TaskStatus.OUTSTANDING)} if early else {},
        main=MainState(MainStatus.SHUTTING_DOWN, 0, gap, -1, 0), shutdown_step="", error=None,
        config={"prefetch_factor": 2, "in_order": True},
    )  # fmt: skip
    return State(k=10**6, time=10**10, loaders=[loader])


def quiet(state: State) -> Recent:
    """What goes with a made-up state: nothing has happened lately."""
    return Recent(state.loaders[0].iterator, since=5 * 10**9, now=10**10, limit="the workers are the limit")


def texts(frame: Frame) -> list[str]:
    return list(lines_of(frame))


def assert_fits(frame: Frame, width: int, height: int) -> None:
    lines = texts(frame)
    assert len(lines) <= height
    assert {cell_len(line) for line in lines} == {width}
    out = io.StringIO()
    Console(width=width, height=height, file=out).print(frame, soft_wrap=True)
    assert out.getvalue() == "\n".join(lines)


def moments(trace: tracing.Trace, most: int = 60) -> Iterator[State]:
    for k in np.unique(np.linspace(0, len(trace) - 1, most, dtype=int)).tolist():
        yield trace.state(k)


def numbers_in(words: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", words)]


# ---- the picture


@pytest.mark.parametrize("size", [*SIZES, (40, 12), (20, 5), (1, 1)])
@pytest.mark.parametrize("workers", [0, 1, 2, 3, 8, 16, 40])
@pytest.mark.parametrize("pin", [False, True])
def test_nothing_overflows(size: tuple[int, int], workers: int, pin: bool) -> None:
    for waiting in (0, 1, 60):
        state = busy_state(workers, pin, waiting)
        for help in (False, True):
            frame = render(state, quiet(state), *size, title="a.trace", mode="live", keys="q quit", help=help)
            assert_fits(frame, *size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("load", list(LOADS))
def test_real_loads_fit(recorded: Recorded, size: tuple[int, int], load: str) -> None:
    trace = recorded(load)
    for state in moments(trace, 25):
        assert_fits(render(state, recent(trace, state, state.time), *size, title="t"), *size)


@pytest.mark.parametrize("size", SIZES)
def test_each_of_16_workers_has_a_row(size: tuple[int, int]) -> None:
    state = busy_state(16, True, 2)
    body = "\n".join(texts(render(state, quiet(state), *size)))
    for worker in state.loaders[0].workers:
        assert re.search(rf"│ *{worker.worker} stream e.* {worker.task} ", body)


@pytest.mark.parametrize("load", ["pinned", "in_order", "persistent", "slots", "serial"])
def test_what_the_state_holds_is_in_its_boxes(recorded: Recorded, load: str) -> None:
    """In the first row of boxes each worker's line has its queues: what is taken next is at the right."""
    trace = recorded(load)
    seen = set()
    for state in moments(trace, 150):
        facts = recent(trace, state, state.time)
        loader = next(loader for loader in state.loaders if loader.iterator == facts.loader)
        lines, line = texts(render(state, facts, 200, 40)), plain(state, facts)
        for worker, shown in zip(loader.workers, lines[2:], strict=False):
            index, work, result = shown.strip("│").split("│▸│")
            for drawn, queues in (index, loader.index_queues), (result, loader.result_queues):
                assert drawn.replace("╎", " ").split() == [str(m) for m in queues[worker.worker].messages[::-1]]
            assert work.split()[:2] == [str(worker.worker), worker.status.value.split()[0]]
            assert worker.task < 0 or f" {worker.task} " in work
            seen |= {"task"} if worker.task >= 0 else set()
        if loader.workers:
            assert all(name in lines[1] for name in ("index_queue", "workers", "worker_result_queue"))
        else:
            assert "no workers" in lines[0] and "─ main " in lines[1] and "index_queue" not in lines[1]
        if loader.pin_thread.status is not PinStatus.NONE and loader.workers:
            top = next(number for number, line in enumerate(lines) if "pin thread" in line)
            assert all(name in lines[top] for name in ("data_queue", "reorder buffer", "main"))
            pin, data, _, main = lines[top + 1].strip("│").split("│▸│")
            assert loader.pin_thread.status.value in pin and loader.main.status.value in main
            assert data.split() == [str(message) for message in loader.data_queue.messages[::-1]]
            seen |= {loader.pin_thread.status, *["full"] * bool(loader.data_queue.messages)}
        slots = [slot for worker in loader.workers for slot in worker.slots]
        lent = f"{sum(slot.status is SlotStatus.LENT for slot in slots)} of {len(slots)} lent"
        assert (lent in line) == any(lent in each for each in lines) == bool(slots and loader.alive)
        seen |= {lent} if slots and loader.alive else {"closed"} if slots else set()
    assert {"pinned": {"task", PinStatus.PINNING, "full"}, "slots": {"1 of 8 lent", "8 of 8 lent", "closed"}}.get(
        load, {"task"} if load != "serial" else set()
    ) <= seen


def test_reorder_buffer_shows_what_it_waits_for(recorded: Recorded) -> None:
    trace = recorded("in_order")  # sample 0 is late by construction, so others are stored
    stored = np.flatnonzero(trace.events["kind"] == Kind.STORED).tolist()
    state = trace.state(stored[0])
    loader = state.loaders[0]
    assert loader.waits_for_task == 0 and loader.reorder_buffer
    lines = texts(render(state, recent(trace, state, state.time), 120, 40))
    top = next(number for number, line in enumerate(lines) if "reorder buffer" in line)
    kept = lines[top + 1].split("│▸│")[0]
    assert numbers_in(kept) == [*loader.reorder_buffer[::-1], 0] and "0?" in kept
    assert "worker 0 has it" in lines[top + 3]


def test_other_loaders_are_named(recorded: Recorded) -> None:
    trace = recorded("two_at_once")
    state = next(state for state in moments(trace, 200) if len(state.loaders) > 1)
    facts = recent(trace, state, state.time)
    first = texts(render(state, facts, 120, 40))[0]
    assert f"also: loader {next(each.loader for each in state.loaders if each.iterator != facts.loader)}" in first


def test_a_dead_worker_is_shown(recorded: Recorded) -> None:
    trace = recorded("dying")
    death = int(np.flatnonzero(trace.events["kind"] == Kind.WORKER_DIED)[0])
    state = trace.state(death)
    facts = recent(trace, state, state.time)
    body = "\n".join(texts(render(state, facts, 120, 40)))
    assert f"dead ({-signal.SIGKILL})" in body
    assert facts.limit == "a worker has died"


@pytest.mark.parametrize("pin", [False, True])
def test_nothing_is_cut_at_80_columns(pin: bool) -> None:
    """Except the ids, which are counted, the line at the top, and the longest of the statuses."""
    state = busy_state(8, pin, 3)
    for reorder_buffer in ([], state.loaders[0].reorder_buffer):
        state.loaders[0].reorder_buffer = reorder_buffer
        for worker in state.loaders[0].workers:
            worker.status = WorkerStatus.COLLATING
        state.loaders[0].main.status = MainStatus.DISPATCHING
        lines = texts(render(state, quiet(state), 80, 24, keys=Replay.keys))
        assert "worker_result_queue" in lines[1]
        assert not [line for line in lines[1:] if "…" in line]
    page = texts(render(state, quiet(state), 80, 24, help=True))
    assert not [line for line in page[1:] if "…" in line]


def test_a_large_window_is_not_filled_with_events(recorded: Recorded) -> None:
    trace = recorded("persistent")
    state = trace.state(-1)
    lines = texts(render(state, recent(trace, state, state.time), 200, 60))
    assert sum(" s " in line[:14] for line in lines) == 20
    [lanes] = [number for number, line in enumerate(lines) if "─ the last " in line]
    assert [line[1:10].strip() for line in lines[lanes + 1 : lanes + 4]] == ["training", "worker 0", "worker 1"]


def test_the_help_says_what_each_box_is() -> None:
    state, page = busy_state(2, True, 3), "\n".join("".join(segment.text for segment in line) for line in HELP)
    boxes = re.findall(r"╭─ (?:[↱↳] )?([a-z_ ]+?) (?:·|─|╮)", "\n".join(texts(render(state, quiet(state), 200, 20))))
    assert len(boxes) == 9 and all(name in page for name in boxes if name not in ("last events", "numbers"))


def test_a_cut_line_ends_with_an_ellipsis() -> None:
    assert [segment.text for segment in fit([Segment("abcdef")], 4)] == ["abc", "…"]
    assert [segment.text for segment in fit([Segment("abcd  ")], 4)] == ["abcd"]  # only space is lost


def test_every_event_has_words_that_fit_into_100_columns() -> None:
    state = busy_state(16, True, 1)
    event, actor = np.zeros(1, fmt.RECORD_DTYPE), Actor(4012, "pin thread", "pin", 1, 12, -1, 0)  # the longest name
    for field, value in {"time": 10**10, "task": 1234, "worker": 12, "queue": Queue.RESULT, "value": 1234}.items():
        event[field] = value
    shown = [kind for kind in Kind if _SAID[kind]]
    assert len(shown) > 30
    for kind in shown:
        event["kind"] = kind
        facts = quiet(state)
        facts.said = [RecentEvent(event[0], actor)]
        frame = texts(render(state, facts, 100, 40))
        [line] = [line for line in frame if " 10.000 s " in line]
        assert "…" not in line, line


@pytest.mark.parametrize("count", [0, 1, 2, 5, 40])
def test_a_long_queue_is_cut_and_counted(count: int) -> None:
    for width, buffered in itertools.product(range(1, 40), (0, 1, 5, 40)):
        line = "".join(segment.text for segment in row_of_cells(range(100, 100 + count), width, min(buffered, count)))
        assert len(line) == width
        more = re.findall(r"\+(\d+)", line)
        shown = [int(number) for number in re.findall(r"(?<!\+)\b\d{3}\b", line)]
        assert shown == list(range(100, 100 + len(shown)))[::-1]
        assert len(shown) + sum(map(int, more)) == count or width < 4


# ---- what happened lately


@pytest.mark.parametrize("load", ["pinned", "in_order", "persistent"])
def test_shares_agree_with_the_tasks(recorded: Recorded, load: str) -> None:
    """Measured to the epoch's end, in a load shorter than the window, by other means: the table of tasks."""
    trace = recorded(load)
    end = int(np.flatnonzero(trace.events["kind"] == Kind.EPOCH_END)[0])
    state = trace.state(end)
    facts = recent(trace, state, state.time)
    tasks = trace.tasks[trace.tasks["epoch"] == 0]
    assert trace.duration < 5e9
    span = state.time - trace.start
    assert facts.trained == pytest.approx((tasks["asked"] - tasks["yielded"]).sum() / span)
    assert facts.batches_per_second == pytest.approx(len(tasks) / span * 1e9)
    by_a_feeder = trace.loaders[0].config["transport"] == "torch"
    for worker, share in enumerate(facts.busy):
        mine = tasks[tasks["worker"] == worker]
        sending = 0 if by_a_feeder else mine["result_sent"] - mine["result_sending"]
        assert share == pytest.approx((mine["result_put"] - mine["fetch_begin"] + sending).sum() / span)
    assert facts.training_on == tasks["task"][np.argmax(tasks["yielded"])]


def test_waiting_with_a_full_reorder_buffer_is_measured(recorded: Recorded) -> None:
    trace = recorded("in_order")
    first = int(np.flatnonzero(trace.events["kind"] == Kind.YIELDED)[0])
    state = trace.state(first)
    kinds, times = trace.events["kind"][: first + 1], trace.events["time"][: first + 1]
    begins, stored = int(times[kinds == Kind.ASKED][0]), int(times[kinds == Kind.STORED][0])
    facts = recent(trace, state, state.time)
    loading = facts.in_loader * (state.time - trace.start)
    assert begins < stored
    assert facts.held == pytest.approx((int(times[-1]) - stored) / loading)


@pytest.mark.parametrize("load", ["pinned", "persistent", "two_at_once", "dying"])
def test_nothing_is_shown_before_it_happens(recorded: Recorded, load: str) -> None:
    trace = recorded(load)
    for state in moments(trace):
        facts = recent(trace, state, state.time)
        assert all(said.event["time"] <= state.time for said in facts.said)
        for lane in (facts.training, *facts.workers):
            assert (lane.begins <= lane.ends).all() and (lane.begins[1:] >= lane.ends[:-1]).all()
            assert not len(lane.ends) or lane.ends[-1] <= state.time
            loads = [load for load, _ in lane.strip(facts.since, facts.now, 30)]
            assert min(loads) >= 0 and max(loads) <= 1 + 1e-9
        assert 0 <= facts.in_loader <= 1 and 0 <= facts.held <= 1 + 1e-9
        assert plain(state, facts)


# ---- which moment is shown


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 10**15

    def __call__(self) -> int:
        return self.now


def test_replay_follows_the_clock(recorded: Recorded) -> None:
    trace, clock = recorded("pinned"), Hand()
    times = trace.events["time"]
    replay = Replay(trace, 2.0, clock)
    for _ in range(20):
        state, now = replay.look()
        assert now == trace.start + 2 * (clock() - 10**15)
        assert times[state.k] <= now < times[state.k + 1]
        assert not replay.ended()
        clock.now += trace.duration // 50
    clock.now += trace.duration
    assert replay.ended()
    assert replay.look()[0].k == len(trace) - 1


def test_replay_pauses_steps_and_resumes(recorded: Recorded) -> None:
    trace, clock = recorded("pinned"), Hand()
    replay, last = Replay(trace, 1.0, clock), len(trace) - 1
    clock.now += trace.duration // 2
    replay.press("space")
    k = replay.look()[0].k
    clock.now += trace.duration // 4
    for key, at, speed in [
        ("", k, 1), ("left", k - 1, 1), ("right", k, 1), ("right", k + 1, 1), ("up", k + 1, 2),
        ("page down", k + 11, 2), ("page up", k + 1, 2), ("end", last, 2), ("right", last, 2),
        ("page down", last, 2), ("home", 0, 2),
        ("left", 0, 2), ("page up", 0, 2), ("right", 1, 2),
    ]:  # fmt: skip
        replay.press(key)
        assert replay.look()[0].k == at and replay.mode == f"‖ ×{speed}  event {at + 1} of {len(trace)}", key
    replay.press("space")
    clock.now += 1000
    assert replay.look()[1] == trace.events["time"][1] + 2000 and replay.mode == "replay ×2"
    clock.now += trace.duration
    assert replay.look()[0].k == last
    replay.press("space")
    assert replay.look()[0].k == 0  # from the end it begins again


def test_a_paused_picture_outlives_the_run(tmp_path: Path) -> None:
    steps = drive(tmp_path)
    next(steps)
    clock = Hand()
    live = Live(tracing.load(tmp_path), clock, lambda: next(steps, 1) == 1)
    live.press("space")
    stopped = live.look()
    for _ in range(8):
        clock.now += CHECK_PERIOD
        assert not live.ended() and live.look() == stopped
    live.press("space")
    assert live.ended()
    state, now = live.look()
    assert state.k > stopped[0].k and now == state.time


def test_the_clock_begins_with_the_first_event(tmp_path: Path) -> None:
    """However long the recording waits for it: it never goes back."""
    with tracing.record(tmp_path):
        clock, shown = Hand(), []
        clock.now = time.monotonic_ns() + 3 * 10**9
        live = Live(tracing.load(tmp_path), clock)
        for _ in range(2):
            state, now = live.look()
            shown.append(recent(live.trace, state, now).seconds)
            list(minidl.DataLoader(Numbers(4)))
            assert in_progress(tmp_path)
        assert 0.0 == shown[0] < shown[1]
        box = texts(render(State(-1, 0, []), Recent(-1), 80, 24))
        assert "no loader yet" in box[1]  # and not a title without words
    assert not in_progress(tmp_path)


# ---- watching


def terminal(width: int = 100, height: int = 30) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(width=width, height=height, file=out, force_terminal=True, color_system="truecolor"), out


def drive(directory: Path) -> Iterator[None]:
    """A load that yields one more batch each time it is called."""
    with tracing.record(directory):
        for _ in minidl.DataLoader(Numbers(24), batch_size=4, num_workers=2, pin_memory="host"):
            yield


def test_a_run_in_progress_is_followed_to_its_end(tmp_path: Path) -> None:
    program = "from pathlib import Path; from tests.tracing.views.test_live import drive; import time\n"
    program += f"for _ in drive(Path({str(tmp_path)!r})): time.sleep(0.2)"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    try:
        while not (fmt.is_trace(tmp_path) and len(tracing.load(tmp_path))):
            time.sleep(0.02)
        console, out = terminal()
        watch(tmp_path, console=console, refresh_per_second=50)
    finally:
        process.wait()
    shown = out.getvalue()
    assert "● live" in shown and "ended" in shown
    assert shown.index("\x1b[?1049h") < shown.index("index_queue") < shown.rindex(LEAVE) < shown.rindex(SHOW_CURSOR)
    assert "6 batches yielded" in " ".join(shown[shown.rindex(LEAVE) :].split())


def test_a_hang_is_shown_until_the_run_makes_progress(tmp_path: Path) -> None:
    """With the thread that keeps it waiting."""
    later = [0]
    waits = "waits on worker_result_queue for batch 4"
    with hanging("blocks", tmp_path / "run.trace", Cause.DATASET, Ending.ONGOING, waits) as (trace, _, _):
        source = Live(trace, lambda: time.monotonic_ns() + later[0], lambda: False)
        source.look()
        assert source.stuck == ()
        later[0] = 60_000_000_000
        state, _now = source.look()
        stuck, command = source.stuck
        assert stuck.startswith("it looks stuck: main waits for worker 0 (pid ")
        assert "), which is in fetch of batch 4, keys [8, 9]" in stuck  # and in which line, if it was looked at by then
        assert command.endswith(f"python -m tracing check {trace.path}")
        once = io.StringIO()
        watch(trace.path, once=True, console=Console(file=once, width=240, height=40), clock=source._clock)
        # The last events are a minute old, and shown all the same.
        assert all(words in once.getvalue() for words in ("● live", stuck, "asks for the next batch"))
        state.loaders[0].yielded += 1
        source._check_for_hang(state)
        assert source.stuck == ()


def test_a_replay_ends_with_the_hang_of_its_run(tmp_path: Path) -> None:
    with hanging("timed out", tmp_path / "run.trace", Cause.DATASET, Ending.TIMED_OUT) as (trace, _, _):
        pass
    clock = Hand()
    replay = Replay(trace, 1.0, clock)
    replay.look()
    assert replay.stuck == ()
    clock.now += 2 * trace.duration
    state, now = replay.look()
    assert replay.stuck[0].startswith("it was stuck: main waits for worker 0 (pid ")
    facts = recent(trace, state, now)
    facts.stuck = replay.stuck
    assert all(words in plain(state, facts) for words in replay.stuck)
    for width, height in SIZES:
        lines = list(lines_of(render(state, facts, width, height, keys="q quit  h help")))
        assert len(lines) == height and {cell_len(line) for line in lines} == {width}
        assert " ▸ it was stuck: main waits for worker 0 (pid " in lines[-2]
        assert "python -m tracing check" in lines[-1] and lines[-1].endswith("q quit  h help")
    replay.press("left")
    assert replay.stuck == ()


def test_a_resize_redraws_the_whole_picture(tmp_path: Path) -> None:
    """Of a run in progress: smaller, and larger again."""
    with hanging("blocks", tmp_path / "run.trace", Cause.DATASET) as (trace, _, _), watched(trace.path) as view:
        view.wait_for("index_queue")
        for width, height in ((60, 15), (120, 40), (80, 24)):
            resize(view.terminal, width, height)
            view.wait_for("\x1b[2J")  # everything that was there is gone ...
            view.wait_for("\x1b[H")
            lines = re.sub(r"\x1b\[[0-9;]*m", "", view.wait_for("\x1b[H")).split("\r\n")
            assert len(lines) == height and {cell_len(line) for line in lines} == {width}
            assert any("0 fetch" in line for line in lines)  # ... and what worker 0 does is drawn anew
        view.send(b"q")
        view.wait_for(LEAVE)
        assert view.end() == 0


@pytest.mark.parametrize("looks", [0, 4])
def test_the_terminal_is_given_back_after_an_error(recorded: Recorded, looks: int) -> None:
    """Before there is a picture, and after the first."""
    calls, (console, out) = iter(range(looks)), terminal()
    with pytest.raises(StopIteration):
        watch(recorded("pinned").path, console=console, clock=lambda: next(calls), refresh_per_second=50)
    shown = out.getvalue()
    assert ("index_queue" in shown) == (looks > 0) and shown.count("\x1b[?1049h") == shown.count(LEAVE) == (looks > 0)
    assert shown.find("index_queue") <= shown.find(LEAVE) <= shown.find(SHOW_CURSOR)


def test_elsewhere_than_in_a_terminal_it_prints_lines(recorded: Recorded) -> None:
    out = io.StringIO()
    watch(recorded("pinned").path, console=Console(file=out), speed=1000)
    lines = out.getvalue().splitlines()
    assert lines and all(re.match(r"\d+\.\d s: (loader \d+, epoch \d+;|no loader)", line) for line in lines)
    assert "6 batches yielded" in lines[-1]
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("load", "words"), [("pinned", r"event \d+ of \d+"), ("dying", "raised ")])
def test_once_prints_one_busy_frame_or_the_failure(
    recorded: Recorded, load: str, words: str, size: tuple[int, int]
) -> None:
    out = io.StringIO()
    watch(recorded(load).path, once=True, console=Console(file=out, width=size[0], height=size[1]))
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert len(lines) == size[1] and {cell_len(line) for line in lines} == {size[0]}
    assert re.search(words, lines[0])


def test_no_color_is_honoured(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    def codes() -> set[str]:
        console, out = terminal()
        watch(recorded("pinned").path, once=True, console=console)
        return set(";".join(re.findall(r"\x1b\[([0-9;]*)m", out.getvalue())).split(";"))

    without_colour = {"0", "1", "2", "7"}  # bold, dim, reverse
    assert not codes() <= without_colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert codes() <= without_colour


def test_a_terminal_that_knows_only_ascii_gets_only_ascii(recorded: Recorded) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    watch(recorded("in_order").path, once=True, console=Console(file=file, width=120, height=40))
    file.flush()
    assert b"index_queue" in raw.getvalue()
    assert all("".join(segment.text for segment in line).translate(ASCII).isascii() for line in HELP)


def test_record_saves_a_picture_that_needs_no_network(recorded: Recorded, tmp_path: Path) -> None:
    picture = tmp_path / "live.svg"
    watch(recorded("pinned").path, once=True, console=Console(file=io.StringIO()), record=picture)
    words = "".join(ElementTree.parse(picture).getroot().itertext()).replace("\xa0", " ")
    assert "index_queue" in words and "reorder buffer" in words
    assert "http" not in picture.read_text().replace("http://www.w3.org/", "").replace("https://www.textualize.io", "")


def test_what_cannot_be_watched_is_an_error(tmp_path: Path, recorded: Recorded) -> None:
    with pytest.raises(tracing.TraceError):
        watch(tmp_path)
    with pytest.raises(ValueError, match="more than 0"):
        watch(recorded("pinned").path, speed=0)


def test_a_trace_without_events_can_be_watched(tmp_path: Path) -> None:
    with tracing.record(tmp_path):
        pass
    out = io.StringIO()
    watch(tmp_path, console=Console(file=out))
    assert "no loader has begun yet" in out.getvalue()


# ---- a real terminal


@pytest.mark.parametrize(
    ("sent", "names"),
    [(b"q", ["q"]), (b" h", ["space", "h"]), (b"\x1b[D\x1b[C", ["left", "right"]), (b"\x1bOA\x1b[B", ["up", "down"]),
     (b"\x1b", ["escape"]), (b"\x1b[5~q", ["page up", "q"]), (b"\x1b[H\x1bOF\x1b[6~", ["home", "end", "page down"]),
     (b"\x1b[15~", [""])],
)  # fmt: skip
def test_the_bytes_of_a_key_have_a_name(sent: bytes, names: list[str]) -> None:
    assert names_of(sent) == names


class Watched:
    """A trace that is watched in a terminal of its own, and what is shown there."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process, self.terminal, self.text = process, terminal, ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end within a character

    def send(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def wait_for(self, words: str) -> str:
        """Read on until `words` come. Returns what came before."""
        while words not in self.text:
            self.text += self._decoder.decode(read_until(self.terminal, bool))
        before, _, self.text = self.text.partition(words)
        return before

    def end(self) -> int:
        """Read what is left, wait for the process, return its exit status."""
        self.text += self._decoder.decode(read_all(self.terminal))
        return self.process.wait()

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO)


@contextlib.contextmanager
def watched(path: Path, width: int = 80, height: int = 24) -> Iterator[Watched]:
    command = [sys.executable, "-m", "tracing", "live", str(path), "--speed", "1e6"]
    with in_terminal(command, ROOT, width, height) as (process, terminal):
        yield Watched(process, terminal)


@pytest.fixture
def view(recorded: Recorded) -> Iterator[Watched]:
    with watched(recorded("pinned").path) as found:
        yield found


def test_keys_work_in_a_real_terminal(view: Watched, recorded: Recorded) -> None:
    last = len(recorded("pinned"))
    view.wait_for(f"event {last} of {last}")
    for keys, words in [
        (b"\x1b[D\x1b[D", f"event {last - 2} of {last}"), (b"\x1b[5~", f"event {last - 12} of {last}"),
        (b"\x1b[6~", f"event {last - 2} of {last}"), (b"\x1b[H", f"event 1 of {last}"), (b"\x1b[A", "×2e+06"),
        (b"\x1b[F", f"event {last} of {last}"), (b"h", "It keeps its colour"),
    ]:  # fmt: skip
        view.send(keys)
        view.wait_for(words)
    view.send(b"h")
    resize(view.terminal, 120, 40)
    view.wait_for("\x1b[2J")
    view.wait_for("index_queue")
    view.send(b"q")
    view.wait_for(LEAVE)
    assert view.end() == 0
    assert SHOW_CURSOR in view.text and view.echoes()


@pytest.mark.parametrize("width", [80, 100])
def test_what_remains_in_the_terminal_is_broken_between_words(width: int, recorded: Recorded) -> None:
    with watched(recorded("pinned").path, width) as view:
        view.wait_for("index_queue")
        view.send(b"q")
        view.wait_for(LEAVE)
        assert view.end() == 0
    lines = view.text.partition(SHOW_CURSOR)[2].split("\r\n")
    assert len(lines) > 1 and max(map(len, lines)) <= width and "main's time" in " ".join(lines)


@pytest.mark.parametrize("end", ["Ctrl-C", "SIGTERM"])
def test_the_terminal_is_given_back_whatever_ends_it(view: Watched, end: str) -> None:
    view.wait_for("index_queue")
    assert not view.echoes()
    if end == "Ctrl-C":
        view.send(b"\x03")
    else:
        view.process.terminate()
    view.wait_for(LEAVE)
    assert view.end() == (128 + signal.SIGTERM if end == "SIGTERM" else 130)
    assert SHOW_CURSOR in view.text and view.echoes()
