"""As on a Mac: without what only Linux has. `make elsewhere`, or

python -m docs.make.elsewhere

The names below are taken from every Python process, and /proc is hidden from it; workers are started by spawn. So it
runs the demo, a script of each loader under the tracer, some exercises, and tests. Exit status 2: this system does not
let /proc be hidden.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from notebooks.exercises.exercise import exercise
from notebooks.exercises.skeleton import generate

ROOT = Path(__file__).parents[2]
# Python runs it as each process starts.
SITECUSTOMIZE = """
import mmap, os, select, signal, time

LINUX = {
    select: ["epoll"],  # before the modules that choose by it what they wait with are imported
    os: ["memfd_create", "pidfd_open", "posix_fallocate", "sched_getaffinity", "sched_setaffinity"],
    mmap: ["MADV_REMOVE"],
    signal: ["pidfd_send_signal"],
    time: ["pthread_getcpuclockid"],
}
for module, names in LINUX.items():
    for name in names:
        vars(module).pop(name, None)
os.process_cpu_count = os.cpu_count  # it uses sched_getaffinity

import multiprocessing.context
multiprocessing.context._default_context._default_context = multiprocessing.get_context("spawn")
"""
# In a mount namespace of its own; $0 is a folder. torch looks for /proc/cpuinfo, on Linux.
HIDE = 'mount --rbind /proc "$0/proc" && mount -t tmpfs none /proc && cp "$0/proc/cpuinfo" /proc && exec "$@"'
SCRIPT = """
import torch
from {package} import DataLoader, TensorDataset

if __name__ == "__main__":
    for (batch,) in DataLoader(TensorDataset(torch.zeros(64, 10_000)), batch_size=4, num_workers=2):
        batch.sum()
"""
# Most tests have a dataset that only a fork can hand to a worker: that is not macOS's default, but works there, too.
# The tests look for processes with psutil, which on Linux needs /proc; while it is imported it complains. There are
# enough cores: when it warns of too many workers, torch says, too, that it does not know which cores are ours.
PYTEST = """
import contextlib, multiprocessing, os, pytest, sys

if __name__ == "__main__":
    with contextlib.redirect_stderr(None):
        import psutil
    psutil.PROCFS_PATH = "{home}/proc"
    multiprocessing.set_start_method("fork")
    os.cpu_count = lambda: 8
    sys.exit(pytest.main(sys.argv[1:]))
"""
EXERCISES = ("01", "07", "17")
TESTS = ("data", "test_batches.py", "test_loader.py", "test_parity.py", "simulated/test_simulation.py")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:  # what is mounted in it is seen only there
        home = Path(folder)
        (home / "proc").mkdir()
        if shutil.which("unshare") is None or not works(home, ["-c", ""]):
            print("error: /proc cannot be hidden here: that takes root, or user namespaces", file=sys.stderr)
            return 2
        (home / "sitecustomize.py").write_text(SITECUSTOMIZE)
        failed = [command for command, shows in commands(home) if not works(home, command, shows)]
    print("== all of it works" if not failed else f"== failed: {[shlex.join(each)[:60] for each in failed]}")
    return int(bool(failed))


def commands(home: Path) -> Iterator[tuple[list[str], str]]:
    """Arguments of Python, and what its output shows."""
    yield ["-m", "tracing", "demo", "--no-live", "-o", "demo"], "Verdict"
    for package in ("torch.utils.data", "minidl"):
        (home / "train.py").write_text(SCRIPT.format(package=package))
        yield ["-m", "tracing", "run", "-o", package, "train.py"], "Verdict"
        yield ["-m", "tracing", "report", package], "Verdict"
        yield ["-m", "tracing", "check", package], "all laws hold"
    for each in map(exercise, EXERCISES):
        (home / each.file).write_text(generate(each, solved=True), encoding="utf-8")
        yield ["-m", "notebooks.exercises", "check", each.id], "passed"
    tests = [str(ROOT / "tests/minidl" / name) for name in TESTS]
    (home / "run_tests.py").write_text(PYTEST.format(home=home))
    yield ["run_tests.py", "-q", "-m", "not slow and not full", *tests], " passed"


def works(home: Path, command: list[str], shows: str = "") -> bool:
    """Whether it ends well, without a traceback."""
    print("==", shlex.join(command[:4]), flush=True)
    hide = ["unshare", "--mount", *["--map-root-user"] * (os.geteuid() != 0), "sh", "-c", HIDE, str(home)]
    env = {**os.environ, "PYTHONPATH": f"{home}:{ROOT}", "MINIDL_ANSWERS": str(home)}
    done = subprocess.run([*hide, sys.executable, *command], cwd=home, env=env, capture_output=True, text=True)
    output = done.stdout + done.stderr
    works = done.returncode == 0 and shows in output and "Traceback" not in output
    if not works:
        print(output)
    return works


if __name__ == "__main__":
    sys.exit(main())
