"""`tracing run`: a script does what it does without it, and leaves a trace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tracing
from minidl.events import Kind
from tests.minidl.dying import wait_until
from tests.tracing.cli.terminal import ROOT, batches_in, in_terminal, read_all
from tests.tracing.forked import TRACED, both, forked
from tracing.recording import file_format as fmt
from tracing.recording.trace_directory import is_alive


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


# ---- the script runs as it does alone


SCRIPT = """
    import os, sys
    import torch.utils.data
    from torch.utils.data import DataLoader
    import minidl

    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 6
        def __getitem__(self, key):
            return key * key, os.environ["FROM_MAIN"]

    class OwnLoader(DataLoader):
        pass

    def collate(samples):
        raise KeyError("no such sample")

    if __name__ == "__main__":
        os.environ["FROM_MAIN"] = "set"
        print(__name__, __file__, __spec__, sys.argv, sys.path[0], __builtins__ is sys.modules["builtins"])
        print(list(OwnLoader(Squares(), 2, num_workers=1, multiprocessing_context="spawn")))
        print(list(minidl.DataLoader(Squares(), 3)))
        kept = DataLoader(Squares(), 3, num_workers=1, persistent_workers=True)
        print(len(list(kept)))
        try:
            list(DataLoader(range(4), 2, collate_fn=collate))
        finally:
            list(DataLoader(range(4), 2, collate_fn=collate, num_workers=1))
"""


def test_a_script_runs_as_it_does_alone(tmp_path: Path) -> None:
    """Loaders of torch and of minidl, a spawned worker, a dataset defined in the script, exceptions."""
    write(tmp_path / "scripts" / "train.py", SCRIPT)
    raised, printed = both(tmp_path, "scripts/train.py", "--lr", "0.1", status=1)
    assert raised.count("no such sample") >= 2
    trace = tracing.load(tmp_path / "trace", strict=True)
    packages = [loader.config["package"] for loader in trace.loaders]
    assert packages == ["torch.utils.data", "minidl", *["torch.utils.data"] * 3]
    assert (trace.events["kind"] == Kind.ERROR_RAISED).sum() == 2
    assert trace.about["ended_by"].startswith("KeyError at train.py:")
    assert (trace.events["kind"] == Kind.YIELDED).sum() == 3 + 2 + 2
    assert tracing.check(trace) == []
    assert "5 loaders in trace" in printed and "Verdict" in printed and "timeline trace -o" in printed


def test_a_script_that_leaves_by_os_exit_says_where_its_report_is(tmp_path: Path) -> None:
    text = "import os; from torch.utils.data import DataLoader; print(len(list(DataLoader(range(9))))); os._exit(3)"
    write(tmp_path / "left.py", text)
    alone, traced = (forked(tmp_path, *how, "left.py", status=3) for how in ((), TRACED))
    printed = traced[1].removeprefix("tracing: ")
    assert alone == (traced[0], "") and printed != traced[1]
    assert "left by os._exit. What it did until then: " in printed and printed.endswith("report trace\n")
    assert "Main was killed in the middle" not in str(tracing.report(tracing.load(tmp_path / "trace")))


def test_a_module_of_a_package_runs_as_it_does_alone(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    text = "import sys; from . import name; print(name, __name__, __package__, __spec__.name, sys.argv, sys.path[0])"
    write(package / "__init__.py", "name = 'pkg'; print('imported', __name__)")
    write(package / "train.py", text + "\nraise SystemExit('that is all')")
    write(package / "__main__.py", f"{text}\nsys.exit(3)")
    raised, printed = both(tmp_path, "-m", "pkg.train", "a", "b", status=1)
    assert "that is all" in raised and "no DataLoader was iterated" in printed
    both(tmp_path, "-m", "pkg", status=3)


def test_a_syntax_error_is_printed_as_python_prints_it(tmp_path: Path) -> None:
    write(tmp_path / "wrong.py", "def f(:\n    pass\n")
    assert "SyntaxError" in both(tmp_path, "wrong.py", status=1)[0]


# ---- Ctrl-C, and the live view


ENDLESS = """
    import contextlib, os, signal, sys, time
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info
    sys.excepthook = lambda *error: sys.__excepthook__(*error) or os.kill(os.getpid(), signal.SIGINT)  # another

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(get_worker_info().id, 1 << 40 if "endless" in sys.argv else 200, 2))

    print("this is the script")
    for batch in DataLoader(Stream(), 2, num_workers=2):
        time.sleep(0.01)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()  # for all of its children, as a supervisor does
"""


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path / "endless.py", ENDLESS)
    process = subprocess.Popen(
        [sys.executable, *TRACED, "endless.py", "endless"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until(lambda: process.poll() is not None or batches_in(tmp_path / "trace") >= 3, 60)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, stdout) == (130, "this is the script\n")
    script, _, ours = stderr.partition("tracing: ")
    assert "KeyboardInterrupt" in script and "run_script.py" not in script and "torch_loader" not in script
    assert "Verdict" in ours
    trace = tracing.load(tmp_path / "trace")
    assert tracing.check(trace) == []
    pids = trace.events["value"][trace.events["kind"] == Kind.WORKER_STARTED].tolist()
    assert len(pids) == 2 and not any(map(is_alive, pids))


def test_live_has_the_terminal_and_gives_it_back(tmp_path: Path) -> None:
    """What the script prints meanwhile is shown when the view ends, and no child that it waits for is the view."""
    write(tmp_path / "short.py", ENDLESS)
    with in_terminal([sys.executable, *TRACED, "--live", "short.py"], tmp_path) as (process, terminal):
        text = read_all(terminal).decode(errors="replace")
        assert process.wait() == 0
    in_turn = ["\x1b[?1049h", "last events", "\x1b[?1049l", "this is the script", "tracing: ", "Verdict"]
    assert sorted(in_turn, key=text.rindex) == in_turn
    assert re.search(r"\d batches yielded; main's time: ", " ".join(text.split()))  # what remains of the view
    assert (tmp_path / "trace" / "output.txt").read_text() == "this is the script\n"
    assert np.isin(Kind.SHUTDOWN_END, tracing.load(tmp_path / "trace").events["kind"])


# ---- where nothing can be written

LOADS = """
    import sys
    import minidl

    print(len(list(minidl.DataLoader(range(int((sys.argv + ["4"])[1]))))), "batches", *sys.argv[2:])
"""


def test_where_no_trace_can_be_made_the_script_runs_and_one_line_says_why(tmp_path: Path) -> None:
    write(tmp_path / "script.py", LOADS)
    write(tmp_path / "a-file", "")
    printed, said = forked(tmp_path, "-m", "tracing", "run", "-o", "a-file/trace", "script.py")
    assert printed == "4 batches\n"
    assert re.fullmatch(r"tracing: not recorded, since \S*a-file/trace cannot be written to: .*\n", said)


@pytest.mark.parametrize("size", ["64k", "2m"])
def test_a_disk_that_is_full_costs_events_and_not_the_script(size: str, tmp_path: Path) -> None:
    """One with room for the description of a trace, and one with room for some events, too."""
    write(tmp_path / "script.py", LOADS)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        printed, said = forked(tmp_path, "-m", "tracing", "run", "-o", "disk/trace", "script.py", "20000")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert printed == "20000 batches\n"
    assert "could not be written to: [Errno 28] No space left on device" in said


def test_a_second_run_of_one_script_takes_a_name_beside_the_first(tmp_path: Path) -> None:
    """By default a trace has the script's name. What comes after that is for the script."""
    write(tmp_path / "script.py", LOADS)
    alive = json.dumps({"format": fmt.VERSION, "pid": os.getpid()})
    write(tmp_path / "traces" / "script" / fmt.DESCRIPTION, alive)
    printed, said = forked(tmp_path, "-m", "tracing", "run", "script.py", "5", "-o", "mine")
    assert printed == "5 batches -o mine\n"
    assert "tracing: another run is recording into traces/script; this one goes to traces/script-2\n" in said
    trace = tracing.load(tmp_path / "traces" / "script-2")
    assert len(trace.loaders) == 1


# ---- minidl's loader in place of torch's


ANY_LOADER = """
    import torch.utils.data
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import DataLoader as Same

    from tests.samples import Samples
    from tests.tracing.loads import large

    class OwnLoader(DataLoader):
        pass

    torch.manual_seed(0)
    assert torch.utils.data.DataLoader is DataLoader is Same
    print([batch[:, 0].tolist() for batch in OwnLoader(Samples(8, large), batch_size=4, num_workers=2, shuffle=True)])
"""


def test_minidls_loader_stands_in_for_torchs(tmp_path: Path) -> None:
    """The same batches come, moved in slots; and it is said that they do."""
    write(tmp_path / "any.py", ANY_LOADER)
    printed, said = forked(tmp_path, *TRACED, "--minidl", "any.py")
    assert printed == forked(tmp_path, "any.py")[0] != ""
    assert "stands in for torch.utils.data's" in said
    trace = tracing.load(tmp_path / "trace")
    assert tracing.check(trace) == [] and (trace.tasks["slot_filled"] >= 0).sum() == 2
    assert [each.config["package"] for each in trace.loaders] == ["minidl"]
