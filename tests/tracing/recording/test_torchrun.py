"""Ranks that torchrun starts are parts of one trace, and the live view has a line for each: both ways round, `run` in
each rank and on the outside. Both are launched once, into one directory."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path

import pytest

import tracing
from minidl.events import Kind
from tests.tracing.cli.terminal import in_terminal, read_all, read_until
from tracing.__main__ import main
from tracing.trace.parts import parts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(110),
    pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX"),
]
TRAINING = """
    import multiprocessing, os, signal, time
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler

    signal.alarm(90)  # whatever becomes of torchrun

    class Rows:
        def __getitem__(self, key):
            while key >= 8 and not os.path.exists("stop"):
                time.sleep(0.02)
            return key

        def __len__(self):
            return 10

    def load(data, sampler=None):
        for _ in DataLoader(data, 1, sampler=sampler, num_workers=1):
            pass

    if __name__ == "__main__":
        dist.init_process_group("gloo")
        sampler = DistributedSampler(Rows(), shuffle=False)  # the last sample of each rank waits
        for epoch in range(2):
            sampler.set_epoch(epoch)
            load(Rows(), sampler)
        if dist.get_rank() == 1:
            child = multiprocessing.get_context("fork").Process(target=load, args=(range(3),))
            child.start()
            child.join()
        dist.barrier()
        dist.destroy_process_group()
"""
BOTH_LOAD = re.compile(rb"(?s)rank 0[^\n]* [1-9]\d* batches.*rank 1[^\n]* [1-9]\d* batches")
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
LIVE = ["-m", "tracing", "run", "--live", "-o", "trace"]
WAYS = {"in each rank": [*TORCHRUN, *LIVE], "outside": [*LIVE, *TORCHRUN]}


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, Path]]:
    """What the terminal showed of each launch, and a copy of its trace. The second launch replaces the trace of the
    first."""
    folder = tmp_path_factory.mktemp("launched")
    (folder / "train.py").write_text(textwrap.dedent(TRAINING))
    found = {}
    for way, command in WAYS.items():
        with in_terminal([sys.executable, *command, "train.py"], folder) as (process, terminal):
            try:
                shown = read_until(terminal, lambda shown: bool(BOTH_LOAD.search(shown)))
            finally:
                (folder / "stop").touch()
            shown += read_all(terminal)
            assert process.wait(30) == 0
        (folder / "stop").unlink()
        assert not (folder / "trace-2").exists()
        found[way] = shown, Path(shutil.copytree(folder / "trace", folder / way / "trace"))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_ranks_are_parts_of_one_trace(
    way: str, launched: dict[str, tuple[bytes, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank's child is no rank."""
    directory = launched[way][1]
    first, second, child = parts(directory)
    for part, batches in ((first, 10), (second, 10), (child, 3)):
        trace = tracing.load(part.path, strict=True)
        assert tracing.check(trace) == [] and (trace.events["kind"] == Kind.YIELDED).sum() == batches
    for rank, part in enumerate((first, second)):
        about = part.about
        assert (about["rank"], about["local_rank"], about["world_size"]) == (rank, rank, 2)
        assert part.path.name == f"rank{rank}-{about['pid']}" and about["stopped"] is not None
    assert child.rank is None and child.about["parent"] == second.about["pid"]
    assert tracing.load(directory).path == first.path
    assert tracing.load(directory, part=1).path == tracing.load(directory, part="rank 1").path == second.path
    assert main(["report", str(directory), "--rank", "1"]) == 0
    printed, said = capsys.readouterr()
    assert said == f"rank 1 of {directory}; there are also rank 0, {child.name} (--rank, --part)\n"
    assert "Verdict" in printed
    with pytest.raises(LookupError, match="no part 7, but rank 0, rank 1, process"):
        tracing.load(directory, part=7)


@pytest.mark.parametrize(("way", "views"), [("outside", 1), ("in each rank", 0)])
def test_live_has_a_line_for_each_rank(way: str, views: int, launched: dict[str, tuple[bytes, Path]]) -> None:
    """Ranks that were each started by itself share a terminal: no view of theirs takes it."""
    shown = launched[way][0]
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == views
    assert shown.count(b"tracing: ") == 1, "one report"
    ended = shown[shown.rindex(b"tracing: ") :].decode()
    assert "3 processes in trace: rank 0, rank 1, process " in ended and "Verdict" in ended
