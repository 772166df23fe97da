"""Every process of a program that iterates a loader is recorded, each into a part of one trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tracing
from minidl.events import Kind
from tests.tracing.cli.terminal import ROOT
from tests.tracing.forked import forked, run
from tracing.recording import file_format as fmt
from tracing.recording.processes import RankRecording
from tracing.recording.trace_directory import being_recorded
from tracing.trace.parts import Part, parts
from tracing.trace.trace import Trace

pytestmark = [pytest.mark.timeout(110), pytest.mark.skipif(sys.platform == "win32", reason="it forks")]

# What the programs load by. Importing torch takes each process seconds, and so does a report on batches: where it only
# matters that a process which loads is seen, it emits how an epoch of minidl's loader begins, and imports no torch.
TRACED = ("-m", "tracing", "run", "-o", "trace")
LOAD = """
    import multiprocessing, os, subprocess, sys

    def load(samples, workers=1):
        from torch.utils.data import DataLoader
        for _ in DataLoader(range(samples), 1, num_workers=workers):
            pass

    def spawned(rank, samples):
        load(samples)

    def emit(size):
        from minidl.events import Kind, emit
        emit(Kind.LOADER, 1 << 32, text={"dataset": "range", "dataset_size": size, "num_workers": 0})
        emit(Kind.EPOCH_BEGIN, 1 << 32, value=-1)
"""
CHILD = 'import sys; sys.path.insert(0, "."); import loading; loading.{}'
IN_PROCESS = "p = multiprocessing.get_context('{}').Process(target={}, args=({},)); p.start(); p.join()"
LOADS = CHILD.format("load(9)")
EMITS = CHILD.format("emit(10)")
# How a process is started; the size of the first dataset that it loads, by which its part is known; how many batches.
PROGRAMS = {
    ("mp.spawn", 3, 3): "torch.multiprocessing.spawn(spawned, (3,), nprocs=1)",
    ("fork", 4, 4): IN_PROCESS.format("fork", "load", 4),
    ("forkserver", 5, 0): IN_PROCESS.format("forkserver", "emit", 5),
    ("pool of processes", 2, 6): """
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            list(pool.map(load, [2, 4]))
    """,
    ("os.fork, os._exit", 7, 7): """
        if (pid := os.fork()) == 0:
            load(7)
            os._exit(0)
        os.waitpid(pid, 0)
    """,
    ("minidl in a subprocess", 8, 8): """
        code = "import minidl\\nfor _ in minidl.DataLoader(range(8), 1): pass"
        subprocess.run([sys.executable, "-c", code], check=True)
    """,
    ("shell", 9, 9): f"subprocess.run(['sh', '-c', sys.executable + ' -c ' + repr({LOADS!r})], check=True)",
    ("os.execv", 10, 0): f"os.fork() or os.execv(sys.executable, [sys.executable, '-c', {EMITS!r}]); os.wait()",
}


def write(folder: Path, text: str) -> Path:
    (folder / "loading.py").write_text(textwrap.dedent(LOAD))
    program = "from loading import *\nif __name__ == '__main__':\n" + textwrap.indent(textwrap.dedent(text), "    ")
    (folder / "train.py").write_text(program)
    return folder / "train.py"


def yielded(part: Part) -> int:
    trace = tracing.load(part.path, strict=True)
    assert tracing.check(trace) == []
    assert len({loader.loader for loader in trace.loaders}) >= 1
    assert sum(actor.role == "main" for actor in trace.actors) == 1
    return int((trace.events["kind"] == Kind.YIELDED).sum())


def size_of(part: Part) -> int:
    """Of the first dataset that it loaded."""
    assert yielded(part) >= 0
    return int(tracing.load(part.path).config(0)["dataset_size"])


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A program that starts a process in each of these ways: its trace, and its standard error."""
    folder = tmp_path_factory.mktemp("family")
    begin = "import torch.utils.data, torch.multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\n"
    write(folder, begin + "\n".join(textwrap.dedent(text) for text in PROGRAMS.values()))
    return folder / "trace", run(folder, *TRACED, "train.py").stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "batches"), PROGRAMS)
def test_a_child_that_loads_is_a_part(name: str, size: int, batches: int, family: tuple[Path, str]) -> None:
    directory, _ = family
    root = fmt.description(directory)
    (part,) = (part for part in parts(directory) if size_of(part) == size)
    assert yielded(part) == batches
    assert part.path.parent == directory / "parts" and part.path.name == str(part.about["pid"])
    assert part.about["pid"] != root["pid"] and part.about["host"] == root["host"] and part.rank is None
    assert part.about["parent"] == root["pid"] or name in ("forkserver", "shell")
    assert (part.about["stopped"] is None) == (name == "os.fork, os._exit")


@pytest.mark.slow
def test_a_program_that_leaves_all_loading_to_children_is_no_part_itself(family: tuple[Path, str]) -> None:
    directory, errors = family
    assert len(parts(directory)) == len(PROGRAMS) and len(Trace(directory)) == 0
    assert f"{len(PROGRAMS)} processes in trace" in errors and "Verdict" in errors and "no DataLoader" not in errors


FORKS_WHILE_LOADING = """
    from torch.utils.data import DataLoader
    iterator = iter(DataLoader(range(9), 3, num_workers=1))
    next(iterator)
    if (pid := os.fork()) == 0:
        load(5, workers=0)
        load(4)
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(iterator)) == 2
"""


@pytest.mark.parametrize("how", ["run", "record"])
def test_a_child_forked_in_the_middle_of_an_epoch_is_not_mixed_with_its_parent(how: str, tmp_path: Path) -> None:
    if how == "run":
        write(tmp_path, FORKS_WHILE_LOADING)
        forked(tmp_path, *TRACED, "train.py")
    else:
        record = "import tracing\nfrom tracing.recording.torch_loader.attach import everything\n"
        body = textwrap.indent(textwrap.dedent(FORKS_WHILE_LOADING), "    ")
        write(tmp_path, f"{record}with everything(), tracing.record('trace', memory=True):\n{body}")
        forked(tmp_path, "train.py")
    found = parts(tmp_path / "trace")
    assert [yielded(part) for part in found] == [3, 9]
    assert found[0].path == tmp_path / "trace"
    assert [len(fmt.events_files(part.path)) for part in found] == [2, 2], "a process that loads, and its worker"
    for part in found:
        assert (tracing.load(part.path).samples["rss"] > 0).any() == (how == "record"), "whose memory is asked for"


NESTED = """
    from torch.utils.data import DataLoader
    class Inner:
        def __len__(self): return 3
        def __getitem__(self, key): return len(list(DataLoader(range(4), 2)))
    assert [int(x) for x in DataLoader(Inner(), 1, num_workers=2, multiprocessing_context="fork")] == [2, 2, 2]
"""


def test_a_loader_nested_in_a_worker_stays_in_its_mains_trace(tmp_path: Path) -> None:
    write(tmp_path, NESTED)
    forked(tmp_path, *TRACED, "train.py")
    assert [part.path for part in parts(tmp_path / "trace")] == [tmp_path / "trace"]
    assert len(tracing.load(tmp_path / "trace").loaders) == 4


# ---- what a child pays, and what it keeps


def test_a_child_that_loads_nothing_imports_nothing(tmp_path: Path) -> None:
    """Its modules are those that it has without the tracer, and a user's own sitecustomize runs."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("MINE = 'runs'")
    child = "import sys; print(sorted(sys.modules), sys.path[1:], sys.modules['sitecustomize'].MINE)"
    write(tmp_path, f"subprocess.run([sys.executable, '-c', {child!r}], check=True)")
    path = os.pathsep.join([str(ROOT), str(tmp_path / "site")])
    alone = run(tmp_path, "train.py", PYTHONPATH=path)
    traced = run(tmp_path, *TRACED, "train.py", PYTHONPATH=path)
    assert traced.stdout == alone.stdout and "runs" in alone.stdout
    assert "no DataLoader was iterated" in traced.stderr
    assert not (tmp_path / "trace" / "parts").exists()


def test_without_a_sitecustomize_of_the_users_none_is_missed(tmp_path: Path) -> None:
    child = "import sys; print(getattr(sys.modules.get('sitecustomize'), '__file__', None))"
    write(tmp_path, f"subprocess.run([sys.executable, '-c', {child!r}], check=True)")
    assert run(tmp_path, *TRACED, "train.py").stderr.startswith("tracing: no DataLoader")


# ---- ranks that no torchrun starts (those that it does: test_torchrun.py)


def test_two_launches_at_once_have_a_trace_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("TRACING_RANKED", str(os.getpid()))
    launched = []
    for port, folder in ("1", "trace"), ("2", "trace-2"):
        monkeypatch.setenv("MASTER_PORT", port)
        launched.append(RankRecording(tmp_path / "trace"))
        assert launched[-1].start().path.parents[1] == tmp_path / folder
    for recording in launched[::-1]:
        recording.stop()
        assert recording.is_last and [part.rank for part in parts(recording.directory)] == [0]


# ---- what is never touched


def test_only_the_runs_own_parts_are_replaced(tmp_path: Path) -> None:
    write(tmp_path, IN_PROCESS.format("fork", "load", 5))
    assert "Verdict" in forked(tmp_path, *TRACED, "train.py")[1]
    (old,) = parts(tmp_path / "trace")
    mine = tmp_path / "trace" / "parts" / "kept"
    with tracing.record(mine):
        pass
    (old.path / "notes.txt").write_text("precious")
    forked(tmp_path, *TRACED, "train.py")
    assert tracing.load(mine).path == mine
    assert [path.name for path in old.path.iterdir()] == ["notes.txt"]
    assert [yielded(part) for part in parts(tmp_path / "trace")] == [5]


def test_a_trace_that_a_child_still_records_into_is_left_alone(tmp_path: Path) -> None:
    """The process that was run has ended; what it started has not."""
    child = "import sys, loading; loading.emit(5); print(flush=True); sys.stdin.readline()"
    started = f"subprocess.Popen([sys.executable, '-c', {child!r}], stdin=0, stdout=subprocess.PIPE)"
    write(tmp_path, f"p = {started}; p.stdout.readline()  # by then it has loaded")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    command = [sys.executable, *TRACED, "train.py"]
    first = subprocess.Popen(command, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert first.wait(60) == 0
        with pytest.warns(UserWarning, match="is being recorded into"), tracing.record(tmp_path / "trace") as other:
            assert other.path == tmp_path / "trace-2"
        assert [size_of(part) for part in parts(tmp_path / "trace")] == [5]
    finally:
        first.communicate("\n", timeout=60)


def test_what_another_machine_records_into_is_left_alone(tmp_path: Path) -> None:
    """On a disk that several hosts share."""
    with tracing.record(tmp_path / "trace"):
        pass
    about = fmt.description(tmp_path / "trace") | {"machine": "another", "stopped": None}
    (tmp_path / "trace" / fmt.DESCRIPTION).write_text(json.dumps(about))
    with pytest.warns(UserWarning, match="is being recorded into"), tracing.record(tmp_path / "trace"):
        pass
    assert not being_recorded(tmp_path / "trace", elsewhere=False), "for a reader it has ended"
