"""A traced program does what the plain one does, whatever it does to its descriptors, its parent or its folder."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tracing
from minidl import events
from minidl.events import Kind, emit
from tests.minidl.dying import wait_until
from tests.tracing.forked import both
from tracing.recording import file_format as fmt

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# `emit` stands for a loader where none is needed: to import torch takes seconds.
BEGIN = """
import os, signal, sys
from minidl.events import Kind, emit
def epoch(number):
    emit(Kind.LOADER, number << 32, text={"dataset": "range", "num_workers": 0})
    emit(Kind.EPOCH_BEGIN, number << 32, value=-1)
epoch(901)
"""
LOAD = """
import minidl, torch.utils.data
from tests.samples import Samples
def opened():
    # Those that stay open: while the recorder reads or lists something, it has one more, for microseconds.
    looks = [{number for number in map(int, os.listdir("/proc/self/fd")) if number < 100} for _ in range(20)]
    return sorted(number for number in set.intersection(*looks) if os.path.lexists(f"/proc/self/fd/{number}"))
at_start = []
samples = Samples(12, lambda key: (key, at_start))
def begin(worker_id): at_start[:] = opened()
options = {"num_workers": 2, "collate_fn": list, "worker_init_fn": begin, "multiprocessing_context": "fork"}
"""
PROGRAMS = {
    "descriptors and handlers": BEGIN + LOAD + """
for package in minidl, torch.utils.data:
    print(opened())
    for batch in package.DataLoader(samples, 3, **options):
        print(batch)
handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
print([(number, getattr(each, "__qualname__", each)) for number, each in handlers.items() if each])
left = iter(package.DataLoader(samples, 3, **options))  # when Python exits
print([key for key, _ in next(left)])
""",
    "all descriptors closed, and used again": BEGIN + LOAD + """
os.closerange(3, 256)
files = [open(f"own-{number}", "w+b") for number in range(200)]
for package in minidl, torch.utils.data:
    loader = package.DataLoader(samples, 3, **options)
    print(sum(key for batch in loader for key, _ in batch))
print({os.fstat(file.fileno()).st_size for file in files})
""",
    "stdout closed": BEGIN + """
os.close(1)
epoch(902)
if os.fork() == 0:
    epoch(903)
    try:
        print("not for the trace", flush=True)
    except OSError as error:
        os._exit(error.errno)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
""",
    "sys.stderr closed": BEGIN + "sys.stderr.close(); epoch(902)",
    "sys.stderr is None": BEGIN + "sys.stderr = None; epoch(902)",
    "stderr used again": BEGIN + """
os.close(2)
file = open("own-file", "w+b")
epoch(902)
import atexit
atexit.register(lambda: print(file.fileno(), os.fstat(2).st_size))
""",
    "an odd error, and what is pickled at exit": BEGIN + """
import atexit, dataclasses, pickle; epoch(902)
@dataclasses.dataclass(frozen=True)
class Odd(Exception):
    __str__ = None
atexit.register(lambda: print(len(pickle.dumps(Odd()))))
def deeper(times):
    if not times: raise Odd
    deeper(times - 1)
deeper(900)
""",
    "working directory deleted": BEGIN + """
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
epoch(902)
""",
}  # fmt: skip
DRAWN = {"descriptors and handlers": 3 * 4, "all descriptors closed, and used again": 2 * 4}  # tasks


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_traced_program_behaves_as_the_plain_one(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAMS[name])
    status = {"stdout closed": errno.EBADF, "an odd error, and what is pickled at exit": 1}.get(name, 0)
    silent = "stderr" in name
    _, found = both(tmp_path, "train.py", status=status, silent=silent)
    assert ("python -m tracing report" in found) is not silent
    trace = tracing.load(tmp_path / "trace", strict=True)
    assert len(trace.loaders) >= 2 and trace.config(1)["dataset"] in ("range", "Samples")
    assert not list((tmp_path / "trace").glob("*-1.*")), "each process made its files once"
    drawn = trace.events[trace.events["kind"] == Kind.KEYS_DRAWN]
    assert all(trace.text(event) is not None for event in drawn) and trace.dropped == 0
    assert len(drawn) == DRAWN.get(name, 0)


def test_after_a_kill_a_file_is_at_most_twice_as_long_as_what_is_in_it(tmp_path: Path) -> None:
    """Once the recording stops it is as long."""
    for count in (200, 3_000, 100_000):
        length = fmt.HEADER_SIZE + count * fmt.RECORD.size
        with tracing.record(tmp_path / str(count)):
            recorder = events.installed()
            if (pid := os.fork()) == 0:
                events.install(recorder)
                for n in range(count):
                    emit(Kind.PUT, 0, n, text=n if n == count - 1 else None)
                os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(pid, 0)
            (path,) = (tmp_path / str(count)).glob(f"events-{pid}-*")
            assert length <= path.stat().st_size <= 2 * length
        assert path.stat().st_size == length and fmt.text_file(path).read_bytes().endswith(b"\n")
        trace = tracing.load(tmp_path / str(count), strict=True)
        assert trace.events["task"].tolist() == list(range(count)) and trace.text(count - 1) == count - 1


def test_what_has_the_name_of_a_file_of_ours_is_not_written_to(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run"):
        emit(Kind.KEYS_DRAWN, text=[1])
        (path,) = fmt.events_files(tmp_path / "run")
        ours = [path, fmt.text_file(path), fmt.samples_file(path), tmp_path / "run" / fmt.DESCRIPTION]
        (tmp_path / "run").rename(tmp_path / "moved")
        (tmp_path / "run").mkdir()
        for each in ours:
            each.write_text('{"format": 2, "of": "another process"}')
        os.closerange(100, 256)
        for n in range(2_000):
            emit(Kind.KEYS_DRAWN, task=n, text=[n])
    assert {each.read_text() for each in ours} == {'{"format": 2, "of": "another process"}'}


ORPHAN = """
import os, sys, time, tracing
from minidl import events
with tracing.record(sys.argv[1]):
    recorder = events.installed()
    if os.fork() == 0:
        events.install(recorder)
        events.emit(events.FETCH_BEGIN)
        print(os.getpid(), flush=True)
    time.sleep(1000)  # or until it is killed
"""


def test_a_worker_whose_main_is_gone_is_not_watched(tmp_path: Path) -> None:
    """Here it is as torch's are while a sample of theirs takes for ever."""
    program = subprocess.Popen([sys.executable, "-c", ORPHAN, tmp_path / "run"], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    worker = int(program.stdout.readline())
    tasks = f"/proc/{worker}/task"
    try:
        assert len(os.listdir(tasks)) == 2
        program.kill()
        program.wait()
        wait_until(lambda: len(os.listdir(tasks)) == 1)
    finally:
        program.kill()
        os.kill(worker, signal.SIGKILL)
        program.communicate()
