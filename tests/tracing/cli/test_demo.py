"""The demo: real data, a model that learns, and an orderly end, whatever ends it."""

from __future__ import annotations

import os
import sys
import tokenize
from pathlib import Path

import numpy as np
import pytest
import torch

import minidl
import tracing
from minidl.events import Kind
from tests.tracing.cli.terminal import ROOT, batches_in, in_terminal, read_all, read_until
from tests.tracing.forked import forked
from tracing.cli import demo_training as demo

LETTERS = {tokenize.NAME: "n", tokenize.NUMBER: "1", tokenize.STRING: "s", tokenize.COMMENT: "c", tokenize.OP: "o"}


def kinds(classes: bytes) -> str:
    """A letter for each byte."""
    return "".join(LETTERS.get(each, " ") for each in classes)


# ---- the data


def test_sources_are_those_of_this_python() -> None:
    paths = demo.find_sources()
    assert Path(os.__file__) in paths and paths == sorted(set(paths))
    assert not any("site-packages" in path.parts or path.suffix != ".py" for path in paths)
    sizes = [path.stat().st_size for path in paths]
    assert len(paths) > 400 and min(sizes) == 0 and max(sizes) > 100_000


@pytest.mark.parametrize(
    ("source", "classes"),
    [
        ("if x1 == 0x1F:  # no\n", "nn nn oo 1111o  cccc "),
        ('s = \'é\' + """a\nb"""\r\n', "n o ssss o sssssssss  "),  # é is two bytes, the end of a line too
        ("", ""),
        ("x = (\n", "n o o "),  # tokenize raises at the end of the file: what came before it stays
    ],
)
def test_each_byte_is_classified(source: str, classes: str) -> None:
    assert kinds(demo.classify(source.encode())) == classes


@pytest.mark.parametrize("source", [b"\x00", b"\xff\xfe", b"'", b"\t\n  x\n x", b"\x0c\x1c\x85x = 1"])
def test_no_file_is_too_strange(source: bytes) -> None:
    assert len(demo.classify(source)) == len(source)


def test_a_sample_is_a_window_of_a_file(tmp_path: Path) -> None:
    short, long, empty = (tmp_path / name for name in ("short.py", "long.py", "empty.py"))
    short.write_text("import os\n")
    long.write_text("".join(f"x{i} = {i}\n" for i in range(2000)))
    empty.write_text("")
    samples = [demo.SourceFiles([short, long, empty])[index] for index in range(3)]
    for sample in samples:
        assert sample["source"].shape == sample["classes"].shape == (demo.WINDOW,)
        assert (sample["source"].dtype, sample["classes"].dtype) == (torch.uint8, torch.int64)
    there = samples[0]["classes"] != demo.PADDING
    assert bytes(samples[0]["source"][there].tolist()) == b"import os\n"
    assert kinds(samples[0]["classes"][there].tolist()) == "nnnnnn nn "
    assert bytes(samples[1]["source"].tolist()) in long.read_bytes()
    assert (samples[2]["classes"] == demo.PADDING).all() and not samples[2]["source"].any()


# ---- the training


@pytest.mark.slow
def test_the_model_learns() -> None:
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    paths = [path for path in demo.find_sources() if 1000 < path.stat().st_size < 12_000][:160]
    loader: minidl.DataLoader[object] = minidl.DataLoader(demo.SourceFiles(paths), demo.BATCH_SIZE, shuffle=True)
    try:
        losses = list(demo.train(loader, seconds=60))
    finally:
        torch.set_num_threads(threads)
    assert len(losses) == len(loader)
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])


def test_a_batch_of_empty_files_teaches_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.py" for number in range(demo.BATCH_SIZE)]
    for path in paths:
        path.touch()
    loader: minidl.DataLoader[object] = minidl.DataLoader(demo.SourceFiles(paths), demo.BATCH_SIZE)
    assert np.isfinite(list(demo.train(loader, seconds=60))).all()


# ---- the whole demo, in a process of its own


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_in_a_pipe_it_prints_plain_lines_and_leaves_everything_behind(tmp_path: Path) -> None:
    directory = tmp_path / "traces" / "demo"
    command = ("-m", "tracing", "demo", "-o", str(directory), "--files")
    forked(tmp_path, *command, "8")  # whose trace is replaced
    printed, about = forked(tmp_path, *command, "64")
    assert "\x1b" not in printed + about
    assert "batch   8 of 8" in printed and "timeline.png and report.txt in traces/demo\n" in printed
    assert about.startswith("tracing: ") and "Verdict" in about and "Warning" not in about
    trace = tracing.load(directory, strict=True)
    assert tracing.check(trace) == []
    assert (trace.events["kind"] == Kind.YIELDED).sum() == 8
    assert (directory / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert (directory / "report.txt").read_text().startswith("Verdict")
    # (On a busy machine the watch may have seen it in one line for long.)
    assert {file.name.split("-")[0] for file in directory.iterdir()} - {"stacks"} == {
        "events", "text", "cpu", "trace.json", "timeline.png", "report.txt"
    }  # fmt: skip
    assert len({event.pid for event in trace.actors}) == 3  # main and two workers, of the second run only


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")
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
