"""The demo: real data, a model that learns, and an orderly end, whatever ends it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import minidl
import tracing
from minidl.events import Kind
from tests.tracing.cli.terminal import ROOT, batches_in, in_terminal, read_all, read_until
from tests.tracing.forked import forked
from tracing.cli import demo_training as demo


@pytest.mark.parametrize("source", [b"", b"\x00\xff", b"'", b"x = (\n" * 400, b"\t\n  x\n x"])
def test_no_file_is_too_strange(source: bytes, tmp_path: Path) -> None:
    path = tmp_path / "strange.py"
    path.write_bytes(source)
    sample = demo.SourceFiles([path])[0]
    there = sample["classes"] != demo.PADDING
    assert len(there) == demo.WINDOW and there.sum() == min(len(source), demo.WINDOW)
    assert bytes(sample["source"][there].tolist()) in source


# ---- the whole demo, in a process of its own


def test_in_a_pipe_it_prints_plain_lines_and_leaves_everything_behind(tmp_path: Path) -> None:
    directory = tmp_path / "traces" / "demo"
    with tracing.record(directory):  # whose trace is replaced
        list(minidl.DataLoader(range(2)))
    printed, about = forked(tmp_path, "-m", "tracing", "demo", "-o", str(directory), "--files", "64")
    assert "\x1b" not in printed + about
    first, *_, last = map(float, re.findall(r"batch +\d+ of 8   loss (.*)", printed))
    assert last < 0.8 * first, "it learns"
    assert "batch   8 of 8" in printed and "timeline.png and report.txt in traces/demo\n" in printed
    assert about.startswith("tracing: ") and "Verdict" in about and "Warning" not in about
    trace = tracing.load(directory, strict=True)
    assert tracing.check(trace) == []
    assert (trace.events["kind"] == Kind.YIELDED).sum() == 8
    assert (directory / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert (directory / "report.txt").read_text().startswith("Verdict")
    assert len({event.pid for event in trace.actors}) == 3  # main and two workers, of the second run only


def test_ctrl_c_gives_back_the_terminal_and_reports_what_there_is(tmp_path: Path) -> None:
    """In a terminal the live view is shown. After Ctrl-C timeline and report are still written, and `make` calls it no
    error."""
    directory = tmp_path / "traces" / "demo"
    make = ["make", "-f", str(ROOT / "Makefile"), "-o", "setup", f"BIN={Path(sys.executable).parent}", "demo"]
    command = [sys.executable, "-c", "import os, sys; os.execvp('make', sys.argv[1:])", *make]
    with in_terminal(command, tmp_path) as (process, terminal):
        shown = read_until(terminal, lambda shown: b"last events" in shown and batches_in(directory) >= 3)
        os.write(terminal, b"\x03")
        shown += read_all(terminal)
        process.wait()
    text = shown.decode(errors="replace")
    assert text.index("\x1b[?1049h") < text.rindex("last events") < text.rindex("\x1b[?1049l") < text.index("Verdict")
    assert text.rindex("\x1b[?25l") < text.rindex("\x1b[?25h")
    assert "interrupted" in text and "Traceback" not in text and "Error" not in text
    trace = tracing.load(directory)
    assert tracing.check(trace) == [] and trace.events["kind"][-1] == Kind.SHUTDOWN_END
    assert (directory / "report.txt").exists() and (directory / "timeline.png").exists()
