"""`merge`: what several hosts recorded, as one trace, with the offsets of their clocks."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import tracing
from minidl.events import Kind, emit
from tracing.__main__ import main
from tracing.recording import file_format as fmt
from tracing.recording.process_header import RANKED
from tracing.trace.parts import parts

ROOT = Path(__file__).parents[3]
AHEAD = 5_000_000_000  # ns that the second host's monotonic clock is ahead of the first's


def record(directory: Path, rank: int, patch: pytest.MonkeyPatch) -> Path:
    patch.setenv("RANK", str(rank))
    patch.setenv("WORLD_SIZE", "2")
    patch.setenv(RANKED, str(os.getpid()))
    with tracing.record(directory):
        emit(Kind.LOADER, 1 << 32, text={"dataset": "D"})
    return directory


def edit(directory: Path, *, ahead: int = 0, clock_error: int | None = None, **entries: str) -> None:
    """As if another host had written it, whose clock of events is `ahead`."""
    about = json.loads((directory / fmt.DESCRIPTION).read_text())
    for moment in (about, about["at_stop"]):
        moment["monotonic"] += ahead
        moment["clock_error"] = clock_error
    (directory / fmt.DESCRIPTION).write_text(json.dumps(about | entries))


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Rank 1's trace was written by another host."""
    found = [record(tmp_path / f"node{rank}", rank, monkeypatch) for rank in (0, 1)]
    edit(found[0], clock_error=1_000_000)
    edit(found[1], clock_error=2_000_000, ahead=AHEAD, host="node1", machine="another")
    return found


def test_the_offset_is_that_of_the_clocks(
    hosts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["merge", str(tmp_path / "all"), *map(str, hosts)]) == 0
    printed = capsys.readouterr().out
    assert "2 processes in" in printed and "rank 0, rank 1" in printed
    first, second = parts(tmp_path / "all")
    assert (first.offset, first.uncertainty) == (0, 0)
    assert second.uncertainty is not None and 3_000_000 <= second.uncertainty < 1_000_000_000
    assert abs(second.offset + AHEAD) <= second.uncertainty
    (offset,) = re.findall(r"Times of host node1 are (\S+) s ", printed)
    assert float(offset) == pytest.approx(-5, abs=second.uncertainty / 1e9)
    assert [tracing.load(tmp_path / "all", part=rank).events.tolist() for rank in (0, 1)] == [
        tracing.load(host).events.tolist() for host in hosts
    ]
    assert main(["report", str(tmp_path / "all"), "--rank", "1"]) == 0
    assert "Times of host node1" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "all")]) == 0
    assert "Note: Times of host node1" in capsys.readouterr().out


def test_a_clock_that_nobody_keeps_right_is_said_to_be_unknown(
    hosts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(hosts[0])
    assert main(["merge", str(tmp_path / "all"), *map(str, hosts)]) == 0
    assert parts(tmp_path / "all")[1].uncertainty is None
    assert "uncertainty unknown" in capsys.readouterr().out


def test_processes_of_one_host_have_one_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they have one pid, as in two containers."""
    traces = [record(tmp_path / name, rank, monkeypatch) for rank, name in enumerate("ab")]
    for _ in range(2):  # what is merged anew replaces what was
        assert main(["merge", str(tmp_path / "all"), *map(str, traces)]) == 0
        found = parts(tmp_path / "all")
        assert [(part.name, part.offset, part.uncertainty) for part in found] == [("rank 0", 0, 0), ("rank 1", 0, 0)]


TRAINING = """
import os, torch.utils.data as data

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
sampler = data.DistributedSampler(range(40), ranks, rank)
for epoch in range(2):
    sampler.set_epoch(epoch)
    assert len(list(data.DataLoader(range(40), 4, sampler=sampler, num_workers=1))) == 5
"""


def namespace(host: str, ahead: int) -> list[str]:
    """What runs a command as another host would: with a name and a monotonic clock of its own (`ahead`, in seconds)."""
    script = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'
    return ["unshare", "--uts", "--time", "--monotonic", str(ahead), "sh", "-c", script, host]


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*namespace("node", 1), "true"], capture_output=True).returncode != 0,
    reason="needs Linux, and the right to make namespaces",
)
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("by", [pytest.param("torchrun", marks=pytest.mark.full), "environment"])
def test_two_hosts(by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two nodes of one training, each with a clock of its own: how far they are apart is known here. Their ranks are
    started by torchrun, or in such an environment as it makes."""
    (tmp_path / "train.py").write_text(TRAINING)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    torchrun = ("-m", "torch.distributed.run", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port)
    hosts = {"node-a": 1000, "node-b": 6000}
    nodes = []
    for number, (host, ahead) in enumerate(hosts.items()):
        command = ["-m", "tracing", "run", "-o", host, "train.py"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        if by == "torchrun":
            command = [*torchrun, "--node-rank", str(number), *command]
        else:
            env |= {"RANK": str(number), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": port}
        command = [*namespace(host, ahead), sys.executable, *command]
        nodes.append(subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True))
    try:
        printed = [node.communicate(timeout=100)[1] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], printed
    assert main(["merge", str(tmp_path / "all"), *(str(tmp_path / host) for host in hosts)]) == 0
    first, second = parts(tmp_path / "all")
    assert [(part.about["host"], part.rank) for part in (first, second)] == [("node-a", 0), ("node-b", 1)]
    # Both tell the time of day by one clock: what is left is by how much that was set, and the time between two looks.
    assert first.offset == 0 and abs(second.offset + 5000 * 10**9) < 10**8
    (shown,) = re.findall(r"Times of host node-b are ([-+.\d]+) s from", capsys.readouterr().out)
    assert float(shown) == pytest.approx(second.offset / 1e9, abs=1e-5)
    assert main(["check", str(tmp_path / "all")]) == 0
    assert main(["report", str(tmp_path / "all")]) == 0
    table = capsys.readouterr().out
    for rank, host in enumerate(hosts):
        assert re.search(rf"^ +rank {rank} +10 .* 1 +{host}$", table, re.MULTILINE)


def test_what_cannot_be_merged(hosts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    assert main(["merge", str(tmp_path / "mine"), str(hosts[0])]) == 2
    assert "neither empty nor a trace" in capsys.readouterr().err
    assert main(["merge", str(tmp_path / "all"), str(hosts[0]), str(tmp_path / "mine")]) == 2
    assert "not a trace" in capsys.readouterr().err and not (tmp_path / "all").exists()
