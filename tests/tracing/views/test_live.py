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
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

import minidl
import tracing
from minidl.events import Kind, Queue
from tests.tracing.cli.terminal import ROOT, in_terminal, read_all, read_until, resize
from tests.tracing.hanging import hanging
from tests.tracing.loads import LOADS, Numbers
from tracing.analysis.hang.causes import Cause
from tracing.analysis.hang.stuck_moments import Ending
from tracing.recording import file_format as fmt
from tracing.recording.trace_directory import being_recorded
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
from tracing.views.live.panels import HELP, Moment, plain, render
from tracing.views.live.playback import CHECK_PERIOD, Live, Replay
from tracing.views.live.recent import SAID, Recent, recent, strip_of
from tracing.views.sequence import as_text
from tracing.views.terminal.batch_cells import row_of_cells
from tracing.views.terminal.keyboard import names_of
from tracing.views.terminal.layout import Frame, lines_of

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
    return Recent(state.loaders[0].iterator, since=5 * 10**9, now=10**10)


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
    """Spread over the trace; and after the first event of each kind in each queue."""
    _, firsts = np.unique(trace.events[["kind", "queue"]], return_index=True)
    for k in np.unique([*np.linspace(0, len(trace) - 1, most, dtype=int), *firsts]).tolist():
        yield trace.state(k)


# ---- the picture


@pytest.mark.parametrize("size", [*SIZES, (40, 12), (20, 5), (1, 1)])
@pytest.mark.parametrize("workers", [0, 1, 2, 3, 8, 16, 40])
@pytest.mark.parametrize("pin", [False, True])
def test_nothing_overflows(size: tuple[int, int], workers: int, pin: bool) -> None:
    for waiting in (0, 1, 60):
        state = busy_state(workers, pin, waiting)
        for help in (False, True):
            frame = render(Moment(state, quiet(state), "a.trace", "live", "q quit", help), *size)
            assert_fits(frame, *size)
            if workers == 16 and size in SIZES and not help:  # each of them has a row
                assert len(re.findall(r"│ *\d+ stream e", "\n".join(texts(frame)))) == 16


@pytest.mark.parametrize("load", [name for name in LOADS if name != "spawned"])
def test_what_the_state_holds_is_in_its_boxes(recorded: Recorded, load: str) -> None:
    """In the first row of boxes each worker's line has its queues: what is taken next is at the right."""
    trace = recorded(load)
    seen = set[Any]()
    for state in moments(trace):
        facts = recent(trace, state, state.time)
        loader = next(loader for loader in state.loaders if loader.iterator == facts.loader)
        frame = render(Moment(state, facts), 200, 40)
        assert_fits(frame, 200, 40)
        lines = texts(frame)
        for worker, shown in zip(loader.workers, lines[2:], strict=False):
            index, work, result = shown.strip("│").split("│▸│")
            for drawn, queues in (index, loader.index_queues), (result, loader.result_queues):
                assert drawn.replace("╎", " ").split() == [str(m) for m in queues[worker.worker].messages[::-1]]
            assert work.split()[:2] == [str(worker.worker), worker.status.value.split()[0]]
            assert worker.task < 0 or f" {worker.task} " in work
            assert worker.status is not WorkerStatus.DEAD or f"dead ({-signal.SIGKILL})" in work
        assert ("index_queue" in lines[1]) == bool(loader.workers)
        others = [f"loader {each.loader}" for each in state.loaders if each is not loader]
        assert not others or f"also: {', '.join(others)}" in lines[0]
        seen |= second_row(loader, lines) if loader.workers else set()
        slots = [slot for worker in loader.workers for slot in worker.slots if loader.alive]
        lent = f"{sum(slot.status is SlotStatus.LENT for slot in slots)} of {len(slots)} lent"
        assert any(lent in each for each in lines) == bool(slots)
        seen |= {lent}
    expected = {"pinned": {PinStatus.PINNING, "full"}, "slots": {"1 of 8 lent", "8 of 8 lent"}, "in_order": {"gap"}}
    assert expected.get(load, set()) <= seen


def second_row(loader: LoaderState, lines: list[str]) -> set[Any]:
    """The reorder buffer shows what it waits for, and the pin thread and data_queue what they hold."""
    top = next(number for number, line in enumerate(lines) if "reorder buffer" in line)
    *pinning, kept, main = lines[top + 1].strip("│").split("│▸│")
    stored, waits_for = loader.reorder_buffer[::-1], loader.waits_for_task
    gap = bool(stored) and waits_for not in stored
    if loader.config["in_order"]:
        assert kept.split() == ([*map(str, stored), *[f"{waits_for}?"] * gap] or ["empty"])
    assert loader.main.status.value.split()[0] in main
    seen: set[Any] = {"gap"} if gap else set()
    if pinning:
        pin, data = pinning
        assert loader.pin_thread.status.value in pin
        assert data.split() == [str(message) for message in loader.data_queue.messages[::-1]]
        seen |= {loader.pin_thread.status, *["full"] * bool(loader.data_queue.messages)}
    return seen


@pytest.mark.parametrize("pin", [False, True])
def test_nothing_is_cut_at_80_columns(pin: bool) -> None:
    """Except the ids, which are counted, the line at the top, and the longest of the statuses."""
    state = busy_state(8, pin, 3)
    state.loaders[0].main.status = MainStatus.DISPATCHING
    for worker in state.loaders[0].workers:
        worker.status = WorkerStatus.COLLATING
    for help, reorder_buffer in (False, []), (False, state.loaders[0].reorder_buffer), (True, []):
        state.loaders[0].reorder_buffer = reorder_buffer
        lines = texts(render(Moment(state, quiet(state), keys=Replay.keys, help=help), 80, 24))
        assert help or "worker_result_queue" in lines[1]
        assert not [line for line in lines[1:] if "…" in line]


def test_the_help_says_what_each_box_is() -> None:
    state, page = busy_state(2, True, 3), "\n".join("".join(segment.text for segment in line) for line in HELP)
    boxes = re.findall(
        r"╭─ (?:[↱↳] )?([a-z_ ]+?) (?:·|─|╮)", "\n".join(texts(render(Moment(state, quiet(state)), 200, 20)))
    )
    assert len(boxes) == 9 and all(name in page for name in boxes if name not in ("last events", "numbers"))


def test_every_event_has_words_that_fit_into_100_columns() -> None:
    state = busy_state(16, True, 1)
    event, actor = np.zeros(1, fmt.RECORD_DTYPE), Actor(4012, "pin thread", "pin", 1, 12, -1, 0)  # the longest name
    for field, value in {"time": 10**10, "task": 1234, "worker": 12, "queue": Queue.RESULT, "value": 1234}.items():
        event[field] = value
    assert len(SAID) > 30
    for kind in SAID:
        event["kind"] = kind
        facts = quiet(state)
        facts.said = [(event[0], actor)]
        frame = texts(render(Moment(state, facts), 100, 40))
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


@pytest.mark.parametrize("load", ["pinned", "persistent"])
def test_shares_agree_with_the_tasks(recorded: Recorded, load: str) -> None:
    """Measured to the epoch's end, in a load shorter than the window, by other means: the table of tasks."""
    trace = recorded(load)
    end = int(np.flatnonzero(trace.events["kind"] == Kind.EPOCH_END)[0])
    state = trace.state(end)
    facts = recent(trace, state, state.time)
    tasks = trace.tasks[trace.tasks["epoch"] == 0]
    span = state.time - trace.start
    assert facts.trained == pytest.approx((tasks["asked"] - tasks["yielded"]).sum() / span)
    assert facts.batches_per_second == pytest.approx(len(tasks) / span * 1e9)
    by_a_feeder = trace.loaders[0].config["transport"] == "torch"
    for worker, share in enumerate(facts.busy):
        mine = tasks[tasks["worker"] == worker]
        sending = 0 if by_a_feeder else mine["result_sent"] - mine["result_sending"]
        assert share == pytest.approx((mine["result_put"] - mine["fetch_begin"] + sending).sum() / span)
    assert facts.training_on == tasks["task"][np.argmax(tasks["yielded"])]


@pytest.mark.parametrize("load", ["pinned", "persistent", "two_at_once", "dying"])
def test_nothing_is_shown_before_it_happens(recorded: Recorded, load: str) -> None:
    trace = recorded(load)
    for state in moments(trace):
        facts = recent(trace, state, state.time)
        assert all(event["time"] <= state.time for event, _ in facts.said)
        for lane in (facts.training, *facts.workers):
            assert (lane.begin <= lane.end).all() and (lane.begin[1:] >= lane.end[:-1]).all()
            assert not len(lane.end) or lane.end[-1] <= state.time
            loads = [load for load, _ in strip_of(lane, facts.since, facts.now, 30)]
            assert min(loads) >= 0 and max(loads) <= 1 + 1e-9
        assert 0 <= facts.in_loader <= 1
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
    for key, at in [("", k), ("left", k - 1), ("right", k), ("right", k + 1)]:
        replay.press(key)
        assert replay.look()[0].k == at and replay.mode == f"‖ ×1  event {at + 1} of {len(trace)}", key
    replay.press("space")
    clock.now += 1000
    assert replay.look()[1] == trace.events["time"][k + 1] + 1000 and replay.mode == "replay ×1"
    clock.now += trace.duration
    replay.press("right")
    assert replay.look()[0].k == last
    replay.press("space")
    assert replay.look()[0].k == 0  # from the end it begins again
    replay.press("left")
    assert replay.look()[0].k == 0


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
        live = Live(tracing.load(tmp_path), clock, lambda: False)
        for _ in range(2):
            state, now = live.look()
            shown.append(recent(live.trace, state, now).seconds)
            list(minidl.DataLoader(Numbers(4)))
            assert being_recorded(tmp_path)
        assert 0.0 == shown[0] < shown[1]
        box = texts(render(Moment(State(-1, 0, []), Recent(-1)), 80, 24))
        assert "no loader yet" in box[1]  # and not a title without words
    assert not being_recorded(tmp_path)


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
        watch(tmp_path, console=console)
    finally:
        process.wait()
    shown = out.getvalue()
    assert "● live" in shown and "ended" in shown
    assert shown.index("\x1b[?1049h") < shown.index("index_queue") < shown.rindex(LEAVE) < shown.rindex(SHOW_CURSOR)
    assert "6 batches yielded" in " ".join(shown[shown.rindex(LEAVE) :].split())


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tracing.Trace]:
    """Of a program that hangs, and goes on to."""
    path = tmp_path_factory.mktemp("blocked") / "run.trace"
    waits = "waits on worker_result_queue for batch 4"
    with hanging("blocks", path, Cause.DATASET, Ending.ONGOING, waits) as (trace, _, _):
        yield trace


def test_a_hang_is_shown_until_the_run_makes_progress(blocked: tracing.Trace) -> None:
    """With the thread that keeps it waiting."""
    later = [0]
    source = Live(blocked, lambda: time.monotonic_ns() + later[0], lambda: False)
    source.look()
    assert source.stuck == ()
    later[0] = 60_000_000_000
    state, _now = source.look()
    stuck, command = source.stuck
    assert stuck.startswith("it looks stuck: main waits for worker 0 (pid ")
    assert "), which is in fetch of batch 4, keys [8, 9]" in stuck  # and in which line, if it was looked at by then
    assert command.endswith(f"python -m tracing check {blocked.path}")
    once = io.StringIO()
    watch(blocked.path, once=True, console=Console(file=once, width=240, height=40), clock=source._clock)
    # The last events are a minute old, and shown all the same.
    assert all(words in once.getvalue() for words in ("● live", stuck, "asks for the next batch"))
    state.loaders[0].yielded += 1
    source._check_for_hang(state)
    assert source.stuck == ()


def test_a_run_in_progress_has_the_reports_verdict(recorded: Recorded) -> None:
    trace, clock = recorded("pinned"), Hand()
    source = Live(trace, clock, lambda: False)
    source.look()
    assert source.limit == ""  # it is too early
    clock.now += 3_000_000_000
    state, now = source.look()
    (loader,) = tracing.report(trace).loaders
    assert source.limit == f"until now {loader.verdict.value}"
    facts = recent(trace, state, now)
    facts.limit = source.limit
    assert plain(state, facts).endswith(source.limit)
    assert source.limit in "".join(texts(render(Moment(state, facts, "run", "", ""), 120, 40)))


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
        lines = texts(render(Moment(state, facts, keys="q quit  h help"), width, height))
        assert len(lines) == height and {cell_len(line) for line in lines} == {width}
        assert " ▸ it was stuck: main waits for worker 0 (pid " in lines[-2]
        assert "python -m tracing check" in lines[-1] and lines[-1].endswith("q quit  h help")
    replay.press("left")
    assert replay.stuck == ()


def test_a_resize_redraws_the_whole_picture(blocked: tracing.Trace) -> None:
    """Of a run in progress: smaller, and larger again."""
    with watched(blocked.path) as view:
        view.wait_for("index_queue")
        for width, height in ((60, 15), (120, 40), (80, 24)):
            resize(view.terminal, width, height)
            view.wait_for("\x1b[2J")  # everything that was there is gone ...
            view.wait_for("\x1b[H")
            lines = re.sub(r"\x1b\[[0-9;]*m", "", view.wait_for("\x1b[H")).split("\r\n")
            assert len(lines) == height and {cell_len(line) for line in lines} == {width}
            assert any("0 fetch" in line for line in lines)  # ... and what worker 0 does is drawn again
        view.send(b"q")
        view.wait_for(LEAVE)
        assert view.end() == 0


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
    """Of the live view, of its help, and of a sequence diagram."""
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"), width=120, height=40)
    watch(recorded("in_order").path, once=True, console=console)
    console.print(Frame(HELP, 120))
    console.print(as_text(recorded("dying"), width=100))
    console.file.flush()
    assert all(words in raw.getvalue() for words in (b"index_queue", b"It keeps its colour", b"STOP"))


def test_record_saves_a_picture_that_needs_no_network(recorded: Recorded, tmp_path: Path) -> None:
    picture = tmp_path / "live.svg"
    watch(recorded("pinned").path, once=True, console=Console(file=io.StringIO()), record=picture)
    words = "".join(ElementTree.parse(picture).getroot().itertext()).replace("\xa0", " ")
    assert "index_queue" in words and "reorder buffer" in words
    assert "http" not in picture.read_text().replace("http://www.w3.org/", "").replace("https://www.textualize.io", "")


def test_a_trace_without_events_is_no_error(tmp_path: Path) -> None:
    with tracing.record(tmp_path):
        pass
    out = io.StringIO()
    watch(tmp_path, console=Console(file=out))
    assert "no loader has begun yet" in out.getvalue()


# ---- a real terminal


@pytest.mark.parametrize(
    ("sent", "names"),
    [(b"q", ["q"]), (b" h", ["space", "h"]), (b"\x1b[D\x1b[C", ["left", "right"]), (b"\x1bOD", ["left"]),
     (b"\x1b", ["escape"]), (b"\x1b[15~q", ["", "q"])],
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
def watched(path: Path) -> Iterator[Watched]:
    command = [sys.executable, "-m", "tracing", "live", str(path), "--speed", "1e6"]
    with in_terminal(command, ROOT, 80, 24) as (process, terminal):
        yield Watched(process, terminal)


@pytest.fixture
def view(recorded: Recorded) -> Iterator[Watched]:
    with watched(recorded("pinned").path) as found:
        yield found


def test_keys_work_in_a_real_terminal(view: Watched, recorded: Recorded) -> None:
    last = len(recorded("pinned"))
    view.wait_for(f"event {last} of {last}")
    for keys, words in [(b"\x1b[D\x1b[D", f"event {last - 2} of {last}"), (b"h", "It keeps its colour")]:
        view.send(keys)
        view.wait_for(words)
    view.send(b"q")
    view.wait_for(LEAVE)
    assert view.end() == 0
    assert SHOW_CURSOR in view.text and view.echoes()
    lines = view.text.partition(SHOW_CURSOR)[2].split("\r\n")  # what remains is broken between words
    assert len(lines) > 1 and max(map(len, lines)) <= 80 and "main's time" in " ".join(lines)


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
