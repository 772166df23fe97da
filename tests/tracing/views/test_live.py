"""The live view: what is where, that nothing overflows, and that the terminal is given back."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import io
import os
import re
import signal
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

import tracing
from minidl.events import Kind
from tests.tracing.cli.terminal import ROOT, in_terminal, read_all, read_until, resize
from tests.tracing.hanging import hanging
from tests.tracing.loads import LOADS, Recorded
from tests.tracing.traces import steady
from tracing.analysis.hang.hang import Cause
from tracing.analysis.hang.stuck_moments import Ending
from tracing.trace.state import LoaderState, PinStatus, State, WorkerStatus
from tracing.views.live.live import watch
from tracing.views.live.panels import HELP, Moment, plain, render
from tracing.views.live.playback import Live, Replay
from tracing.views.live.recent import Recent
from tracing.views.terminal.batch_cells import row_of_cells
from tracing.views.terminal.layout import Frame, lines_of

LEAVE = "\x1b[?1049l"  # back to the terminal's first screen
SHOW_CURSOR = "\x1b[?25h"


def assert_fits(frame: Frame, width: int, height: int) -> None:
    lines = list(lines_of(frame))
    assert len(lines) <= height and {cell_len(line) for line in lines} == {width}


def moments(trace: tracing.Trace, most: int = 60) -> Iterator[State]:
    """Spread over the trace; and after the first event of each kind in each queue."""
    _, firsts = np.unique(trace.events[["kind", "queue"]], return_index=True)
    for k in np.unique([*np.linspace(0, len(trace) - 1, most, dtype=int), *firsts]).tolist():
        yield trace.state(k)


# ---- the picture


@pytest.mark.parametrize("load", ["serial", "pinned", "slots", 16, 40])
def test_nothing_overflows(load: Any, recorded: Recorded, tmp_path: Path) -> None:
    """Of a few workers, and of so many that not each has a row."""
    trace = steady(tmp_path, 10 * load, workers=load) if isinstance(load, int) else recorded(load)
    for state in moments(trace, most=8):
        moment = Moment(state, Recent(trace, state, state.time), "a.trace", "live", "q quit")
        for width, height in [(200, 60), (120, 40), (80, 24), (40, 12), (20, 5), (1, 1)]:
            frame = render(moment, width, height)
            assert_fits(frame, width, height)
            if load == 16 and height >= 24:  # each of them has a row
                assert len(re.findall(r"│ *\d+ [a-z]", "\n".join(lines_of(frame)))) >= 16
            assert_fits(render(dataclasses.replace(moment, help=True), width, height), width, height)


def test_the_help_says_what_each_box_is(recorded: Recorded) -> None:
    trace, page = recorded("pinned"), "\n".join(lines_of(Frame(HELP, 100)))
    state = trace.state(len(trace) // 2)
    picture = "\n".join(lines_of(render(Moment(state, Recent(trace, state, state.time)), 200, 20)))
    boxes = re.findall(r"╭─ (?:[↱↳] )?([a-z_ ]+?) (?:·|─|╮)", picture)
    assert len(boxes) == 9 and all(name in page for name in boxes if name not in ("last events", "numbers"))


@pytest.mark.parametrize("load", [name for name in LOADS if name != "spawned"])
def test_what_the_state_holds_is_in_its_boxes(recorded: Recorded, load: str) -> None:
    """In the first row of boxes each worker's line has its queues: what is taken next is at the right."""
    trace = recorded(load)
    seen = set[Any]()
    for state in moments(trace):
        facts = Recent(trace, state, state.time)
        assert all(event["time"] <= state.time for event, _ in facts.said) and plain(state, facts)
        loader = next(loader for loader in state.loaders if loader.iterator == facts.loader)
        frame = render(Moment(state, facts), 200, 40)
        assert_fits(frame, 200, 40)
        lines = list(lines_of(frame))
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
    expected = {"pinned": {PinStatus.PINNING, "full"}, "in_order": {"gap"}}
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


@pytest.mark.parametrize("count", [0, 1, 2, 5, 40])
def test_a_long_queue_is_cut_and_counted(count: int) -> None:
    for width in range(4, 40):
        line = "".join(segment.text for segment in row_of_cells(range(100, 100 + count), width, count // 2))
        shown = re.findall(r"(?<!\+)\b\d{3}\b", line)
        assert shown == [str(number) for number in range(100, 100 + len(shown))][::-1]
        assert len(line) == width and len(shown) + sum(map(int, re.findall(r"\+(\d+)", line))) == count


# ---- what happened lately


def test_shares_agree_with_the_tasks(recorded: Recorded) -> None:
    """Measured to the epoch's end, in a load shorter than the window, by other means: the table of tasks."""
    trace = recorded("pinned")
    end = int(np.flatnonzero(trace.events["kind"] == Kind.EPOCH_END)[0])
    state = trace.state(end)
    facts = Recent(trace, state, state.time)
    tasks = trace.tasks[trace.tasks["epoch"] == 0]
    span = state.time - trace.start
    assert facts.trained == pytest.approx((tasks["asked"] - tasks["yielded"]).sum() / span)
    assert facts.batches_per_second == pytest.approx(len(tasks) / span * 1e9)
    for worker, share in enumerate(facts.busy):
        mine = tasks[tasks["worker"] == worker]
        assert share == pytest.approx((mine["result_put"] - mine["fetch_begin"]).sum() / span)
    assert facts.training_on == tasks["task"][np.argmax(tasks["yielded"])]


# ---- which moment is shown


def test_replay_follows_the_clock_pauses_and_steps(recorded: Recorded) -> None:
    trace, clock = recorded("pinned"), [10**15]
    replay, last, times = Replay(trace, 2.0, lambda: clock[0]), len(trace) - 1, trace.events["time"]
    clock[0] += trace.duration // 4
    state, now = replay.look()
    assert now == trace.start + trace.duration // 4 * 2 and times[state.k] <= now < times[state.k + 1]
    replay.press("space")
    clock[0] += trace.duration // 4
    for key, at in [("", state.k), ("left", state.k - 1), ("right", state.k), ("right", state.k + 1)]:
        replay.press(key)
        assert replay.look()[0].k == at and replay.mode == f"‖ ×2  event {at + 1} of {last + 1}", key
    replay.press("space")
    clock[0] += 1000
    assert replay.look()[1] == times[state.k + 1] + 2000 and not replay.ended()
    clock[0] += trace.duration
    assert replay.look()[0].k == last and replay.ended()
    replay.press("space")
    assert replay.look()[0].k == 0  # from the end it begins again


# ---- watching


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tracing.Trace]:
    """Of a program that hangs, and goes on to."""
    path = tmp_path_factory.mktemp("blocked") / "run.trace"
    waits = "waits on worker_result_queue for batch 4"
    with hanging("blocks", path, Cause.CODE, Ending.ONGOING, waits) as (trace, _, _):
        yield trace


def test_a_hang_is_shown_until_the_run_makes_progress(blocked: tracing.Trace) -> None:
    """With the thread that keeps it waiting."""
    later = [0]
    source = Live(blocked, lambda: time.monotonic_ns() + later[0])
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
    trace, clock = recorded("pinned"), [10**15]
    source = Live(trace, lambda: clock[0])
    clock[0] += 3_000_000_000
    state, now = source.look()
    facts = Recent(trace, state, now)
    facts.limit = source.limit
    assert source.limit == f"so far {tracing.report(trace).loaders[0].verdict.value}"
    assert source.limit in "".join(lines_of(render(Moment(state, facts), 120, 40)))


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
        for key, words in [(b" ", "paused"), (b" ", "live"), (b"q", LEAVE)]:
            view.send(key)
            view.wait_for(words)
        assert view.end() == 0


@pytest.mark.parametrize(("load", "words"), [("pinned", r"event \d+ of \d+"), ("dying", "raised ")])
def test_once_prints_one_busy_frame_or_the_failure(recorded: Recorded, load: str, words: str) -> None:
    out = io.StringIO()
    watch(recorded(load).path, once=True, console=Console(file=out, width=80, height=24))
    lines = out.getvalue().splitlines()
    assert len(lines) == 24 and {cell_len(line) for line in lines} == {80} and re.search(words, lines[0])


def test_record_saves_a_picture_that_needs_no_network(recorded: Recorded, tmp_path: Path) -> None:
    picture = tmp_path / "live.svg"
    watch(recorded("pinned").path, once=True, console=Console(file=io.StringIO()), record=picture)
    words = "".join(ElementTree.parse(picture).getroot().itertext()).replace("\xa0", " ")
    assert "index_queue" in words and "reorder buffer" in words
    assert "http" not in picture.read_text().replace("http://www.w3.org/", "").replace("https://www.textualize.io", "")


def test_a_trace_without_events_is_no_error(nothing: tracing.Trace) -> None:
    out = io.StringIO()
    watch(nothing.path, console=Console(file=out))
    assert "no loader has begun yet" in out.getvalue()


# ---- a real terminal


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


def test_keys_work_in_a_real_terminal(recorded: Recorded) -> None:
    last = len(recorded("pinned"))
    with watched(recorded("pinned").path) as view:
        view.wait_for(f"event {last} of {last}")
        for keys, words in [(b"\x1b[D\x1bOD", f"event {last - 2} of {last}"), (b"h", "It keeps its colour")]:
            view.send(keys)
            view.wait_for(words)
        view.send(b"q")
        view.wait_for(LEAVE)
        assert view.end() == 0
        assert SHOW_CURSOR in view.text and view.echoes()
    lines = view.text.partition(SHOW_CURSOR)[2].split("\r\n")  # what remains is broken between words
    assert len(lines) > 1 and max(map(len, lines)) <= 80 and "main's time" in " ".join(lines)


@pytest.mark.parametrize("end", ["Ctrl-C", "SIGTERM"])
def test_the_terminal_is_given_back_whatever_ends_it(recorded: Recorded, end: str) -> None:
    with watched(recorded("pinned").path) as view:
        view.wait_for("index_queue")
        assert not view.echoes()
        if end == "Ctrl-C":
            view.send(b"\x03")
        else:
            view.process.terminate()
        view.wait_for(LEAVE)
        assert view.end() == (128 + signal.SIGTERM if end == "SIGTERM" else 130)
        assert SHOW_CURSOR in view.text and view.echoes()
