"""Every process of a program that iterates a loader is recorded, each into a part of one trace."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from pathlib import Path

import pytest

import tracing
from minidl.events import Kind
from tests.tracing.cli.terminal import ROOT, in_terminal, read_all, read_until
from tests.tracing.forked import TRACED, forked, run
from tracing.__main__ import main
from tracing.recording import file_format as fmt
from tracing.trace.parts import Part, parts
from tracing.trace.trace import Trace

# What the programs load by. Importing torch takes each process seconds, and so does a report on batches: where it only
# matters that a process which loads is seen, it emits how an epoch of minidl's loader begins, and imports no torch.
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
IN_PROCESS = "p = multiprocessing.get_context('{}').Process(target={}, args=({},)); p.start(); p.join()"
MINIDL = "import minidl\nfor _ in minidl.DataLoader(range(8), 1): pass"
IN_SHELL = f"{shlex.quote(sys.executable)} -c {shlex.quote(MINIDL)}"
EMITS = "import loading; loading.emit(9)"
# How a process is started; the size of the first dataset that it loads, by which its part is known; how many batches.
PROGRAMS = {
    ("mp.spawn", 3, 3): "torch.multiprocessing.spawn(spawned, (3,), nprocs=1)",
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
    ("minidl, by a shell", 8, 8): f"subprocess.run(['sh', '-c', {IN_SHELL!r}], check=True)",
    ("os.execv", 9, 0): f"os.fork() or os.execv(sys.executable, [sys.executable, '-c', {EMITS!r}]); os.wait()",
}


def write(folder: Path, text: str) -> None:
    (folder / "loading.py").write_text(textwrap.dedent(LOAD))
    program = "from loading import *\nif __name__ == '__main__':\n" + textwrap.indent(textwrap.dedent(text), "    ")
    (folder / "train.py").write_text(program)


def yielded(part: Part) -> int:
    trace = tracing.load(part.path, strict=True)
    assert tracing.check(trace) == []
    assert sum(actor.role == "main" for actor in trace.actors) == 1
    return int((trace.events["kind"] == Kind.YIELDED).sum())


def test_each_child_that_loads_is_a_part(tmp_path: Path) -> None:
    """The program itself, which leaves all loading to them, is none."""
    begin = "import torch.utils.data, torch.multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\n"
    write(tmp_path, begin + "\n".join(textwrap.dedent(text) for text in PROGRAMS.values()))
    errors = run(tmp_path, *TRACED, "train.py").stderr
    directory = tmp_path / "trace"
    root = fmt.description(directory)
    found = {tracing.load(part.path).config(0)["dataset_size"]: part for part in parts(directory)}
    assert found.keys() == {size for _, size, _ in PROGRAMS} and len(Trace(directory)) == 0
    assert f"{len(PROGRAMS)} processes in trace" in errors and "Verdict" in errors and "no DataLoader" not in errors
    for name, size, batches in PROGRAMS:
        part = found[size]
        assert yielded(part) == batches, name
        assert part.path.parent == directory / "parts" and part.path.name == str(part.about["pid"])
        assert part.about["pid"] != root["pid"] and part.about["machine"] == root["machine"] and part.rank is None
        assert (part.about["stopped"] is None) == (name == "os.fork, os._exit")


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


def test_a_child_forked_in_the_middle_of_an_epoch_is_not_mixed_with_its_parent(tmp_path: Path) -> None:
    body = textwrap.indent(textwrap.dedent(FORKS_WHILE_LOADING), "    ")
    write(tmp_path, f"import tracing\nwith tracing.record('trace'):\n{body}")
    forked(tmp_path, "train.py")
    found = parts(tmp_path / "trace")
    assert [yielded(part) for part in found] == [3, 9]
    assert found[0].path == tmp_path / "trace"
    assert [len(fmt.events_files(part.path)) for part in found] == [2, 2], "a process that loads, and its worker"


NESTED = """
    from torch.utils.data import DataLoader
    from tests.samples import Samples
    inner = Samples(3, lambda key: len(list(DataLoader(range(4), 2))))
    assert [int(x) for x in DataLoader(inner, 1, num_workers=2, multiprocessing_context="fork")] == [2, 2, 2]
"""


def test_a_loader_nested_in_a_worker_stays_in_its_mains_trace(tmp_path: Path) -> None:
    write(tmp_path, NESTED)
    forked(tmp_path, *TRACED, "train.py")
    (part,) = parts(tmp_path / "trace")
    assert part.path == tmp_path / "trace" and yielded(part) == 3 + 3 * 2
    assert len(tracing.load(part.path).loaders) == 1 + 3


# ---- what a child pays, and what it keeps


@pytest.mark.parametrize("own", [True, False])
def test_a_child_that_loads_nothing_imports_nothing(own: bool, tmp_path: Path) -> None:
    """Its modules are those that it has without the tracer, and a user's own sitecustomize runs, if there is one."""
    (tmp_path / "site").mkdir()
    if own:
        (tmp_path / "site" / "sitecustomize.py").write_text("print('runs')")
    child = "import sys; print(sorted(sys.modules.keys() - {'sitecustomize'}), sys.path[1:])"
    write(tmp_path, f"subprocess.run([sys.executable, '-c', {child!r}], check=True)")
    path = os.pathsep.join([str(ROOT), str(tmp_path / "site")])
    alone = run(tmp_path, "train.py", PYTHONPATH=path)
    traced = run(tmp_path, *TRACED, "train.py", PYTHONPATH=path)
    assert traced.stdout == alone.stdout and ("runs" in alone.stdout) == own
    assert traced.stderr.startswith("tracing: no DataLoader was iterated")
    assert not (tmp_path / "trace" / "parts").exists()


# ---- what is never touched


def test_only_the_runs_own_parts_are_replaced_once_they_have_ended(tmp_path: Path) -> None:
    write(tmp_path, IN_PROCESS.format("fork", "load", 5))
    assert "Verdict" in forked(tmp_path, *TRACED, "train.py")[1]
    (old,) = parts(tmp_path / "trace")
    mine = tmp_path / "trace" / "parts" / "kept"
    with tracing.record(mine):
        pass
    (old.path / "notes.txt").write_text("precious")
    ended = (old.path / fmt.DESCRIPTION).read_text()
    (old.path / fmt.DESCRIPTION).write_text(json.dumps({**old.about, "pid": os.getpid(), "stopped": None}))
    with pytest.warns(UserWarning, match="is being recorded into"), tracing.record(tmp_path / "trace") as other:
        assert other.path == tmp_path / "trace-2"
    (old.path / fmt.DESCRIPTION).write_text(ended)
    forked(tmp_path, *TRACED, "train.py")
    assert tracing.load(mine).path == mine
    assert [path.name for path in old.path.iterdir()] == ["notes.txt"]
    assert [yielded(part) for part in parts(tmp_path / "trace")] == [5]


# ---- ranks that torchrun starts


TRAINING = """
    import multiprocessing, os, signal, time
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler
    from tests.samples import Samples

    signal.alarm(90)  # whatever becomes of torchrun

    def wait():
        while not os.path.exists("stop"):
            time.sleep(0.02)

    def load(data, sampler=None):
        for _ in DataLoader(data, 1, sampler=sampler, num_workers=1):
            pass

    if __name__ == "__main__":
        dist.init_process_group("gloo")
        samples = Samples(10, at={8: wait, 9: wait})
        sampler = DistributedSampler(samples, shuffle=False)  # the last sample of each rank waits
        for epoch in range(2):
            sampler.set_epoch(epoch)
            load(samples, sampler)
        if dist.get_rank() == 1:
            child = multiprocessing.get_context("fork").Process(target=load, args=(range(3),))
            child.start()
            child.join()
        dist.barrier()
        dist.destroy_process_group()
"""
COMMAND = "-m tracing run --live -o trace -m torch.distributed.run --standalone --nproc-per-node 2 train.py"


def test_ranks_are_parts_of_one_trace_and_one_is_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rank's child is no rank. The live view shows a rank, and ends with one report."""
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAINING))
    with in_terminal([sys.executable, *COMMAND.split()], tmp_path) as (process, terminal):
        try:
            shown = read_until(terminal, lambda shown: b"rank 0 of 2 processes" in shown)
        finally:
            (tmp_path / "stop").touch()
        shown += read_all(terminal)
        assert process.wait(30) == 0
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1
    assert shown.count(b"tracing: ") == 1, "one report"
    ended = shown[shown.rindex(b"tracing: ") :].decode()
    assert "3 processes in trace: rank 0, rank 1, process " in ended and "Verdict" in ended
    directory = tmp_path / "trace"
    first, second, child = parts(directory)
    assert [yielded(part) for part in (first, second, child)] == [10, 10, 3]
    for rank, part in enumerate((first, second)):
        assert (part.about["rank"], part.about["world_size"]) == (rank, 2) and part.about["stopped"] is not None
        assert part.path.name == f"rank{rank}-{part.about['pid']}"
    assert tracing.load(directory).path == first.path
    assert tracing.load(directory, part=1).path == tracing.load(directory, part="rank 1").path == second.path
    assert main(["report", str(directory), "--rank", "1"]) == 0
    _, said = capsys.readouterr()
    assert said == f"rank 1 of {directory}; there are also rank 0, {child.name} (--rank, --part)\n"
    with pytest.raises(LookupError, match="no part 7: there are rank 0, rank 1, process"):
        tracing.load(directory, part=7)
