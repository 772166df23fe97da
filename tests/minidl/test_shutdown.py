"""Main ends, however it ends, and nothing is left: no process, no output, no open file, in bounded time.

Each program below runs in a main, and a session, of its own: whatever is alive in that session after main is a
leftover, whatever its parent is by then. A worker that is stuck in a fetch is the worst that a shutdown can meet.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from minidl import shutdown
from minidl.events import Kind
from tests.minidl.dying import keys, loader_of, open_files, stream, wait_until, workers
from tests.minidl.mains import Mains
from tests.minidl.observing import emitted

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_names")]


# What a program does. (Where its threads wait for ever, that is until main ends.)
EXITS = {
    "exhausted": "list(loader())",
    "half way, in a global": "it = iter(loader()); next(it)",
    "half way, pinned": "it = iter(loader(pin_memory='host')); next(it)",
    "not even begun": "it = iter(loader())",
    "persistent and idle": "l = loader(persistent_workers=True, pin_memory='host'); list(l)",
    "persistent, half way": "l = loader(persistent_workers=True, pin_memory='host'); next(iter(l))",
    "in a reference cycle": "it = iter(loader()); box = [it]; box.append(box); next(it); del it, box",
    "sys.exit": "it = iter(loader()); next(it); sys.exit(7)",
    "exception": "it = iter(loader()); next(it); raise LookupError('mine')",
    "worker stuck": "it = iter(loader(at=3)); until_stuck()",
    "worker stuck, pinned": "it = iter(loader(at=3, pin_memory='host')); until_stuck()",
    "worker stuck, persistent": "l = loader(at=3, persistent_workers=True); iter(l); until_stuck()",
    "in a thread": "threading.Thread(target=lambda: next(iter(loader()))).start()",
    "in a daemon thread": """
        go = threading.Event()
        def train():
            it = iter(loader()); next(it); go.set(); threading.Event().wait()
        threading.Thread(target=train, daemon=True).start()
        go.wait()
    """,
    "two at once": "a = iter(loader()); b = iter(loader(pin_memory='host')); next(a); next(b)",
    "batches held": "with way('slots'): it = iter(loader()); held = [next(it) for _ in range(9)]",
    "batches held, without the loader": "with way('slots'): held = list(loader())",
    "batches held, pinned": "with way('slots'): it = iter(loader(pin_memory='host')); held = next(it)",
    "spawn, half way": "it = iter(loader('spawn')); next(it)",
    "forkserver, worker stuck": "it = iter(loader('forkserver', at=3)); until_stuck()",
}
# Where they are not 0 and nothing: the exit code, and the last line on stderr.
ENDS = {"sys.exit": (7, ""), "exception": (1, "LookupError: mine")}


@pytest.mark.parametrize("what", EXITS)
def test_a_main_that_exits_leaves_nothing(what: str, mains: Mains, tmp_path: Path) -> None:
    code, last_line = ENDS.get(what, (0, ""))
    mains.start(EXITS[what], tmp_path)
    returned, errors = mains.end(limit=30)
    assert returned == code
    assert errors.strip().rpartition("\n")[2] == last_line, errors
    assert last_line or not errors


@pytest.mark.parametrize(
    "options",
    [
        "",
        "pin_memory='host'",
        "persistent_workers=True, pin_memory='host'",
        "at=3",
        "at=3, persistent_workers=True, pin_memory='host'",
        "context='spawn', at=3",
        "context='forkserver', at=3",
    ],
)
def test_no_worker_outlives_a_killed_main(options: str, mains: Mains, tmp_path: Path) -> None:
    """No worker is alive two seconds later: neither one that waits for a task, nor one stuck in a fetch."""
    stuck = "until_stuck()" if "at=3" in options else ""
    lent = f"with way('slots'): it = iter(loader({options})); lent = next(it)"
    mains.start(f"{lent}; {stuck}\nwait_for_the_end()", tmp_path)
    mains.wait_for("ready")
    assert len(mains.members()) >= 3
    os.kill(mains.pid, signal.SIGKILL)
    code, _ = mains.end(limit=1, leftover_limit=2)
    assert code == -signal.SIGKILL


@pytest.mark.parametrize("options", ["", "pin_memory='host'", "persistent_workers=True", "at=5", "context='spawn'"])
def test_ctrl_c_ends_the_workers_in_silence(options: str, mains: Mains, tmp_path: Path) -> None:
    """SIGINT goes to all, as from a terminal. Main handles it undisturbed; the workers print nothing."""
    stuck = "until_stuck()" if "at=5" in options else ""
    program = f"""
        it = iter(loader({options}))
        next(it), next(it)  # of either worker
        {stuck}
        try:
            wait_for_the_end()
        except KeyboardInterrupt:
            while workers():
                pass  # it saves a checkpoint, perhaps
            sys.exit(9)
    """
    mains.start(program, tmp_path)
    mains.wait_for("ready")
    os.killpg(mains.pid, signal.SIGINT)
    assert mains.end(limit=5) == (9, "")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "PATIENCE", 0.3)


@pytest.mark.parametrize("pin_memory", [False, "host"], ids=["no-pin", "pin"])
def test_an_iterator_dropped_half_way_leaves_nothing(pin_memory: Any) -> None:
    gc.collect()
    before = open_files()
    iterator = iter(loader_of(keys(40), pin_memory=pin_memory))
    next(iterator)
    started, threads = workers(), threading.enumerate()
    del iterator
    assert [worker.exitcode for worker in started] == [0, 0]
    assert [thread.daemon for thread in threads if thread.name == "pin thread"] == [True] * bool(pin_memory)
    assert "pin thread" not in [thread.name for thread in threading.enumerate()]
    wait_until(lambda: open_files() <= before + 4, 5.0)  # a Process keeps two pipes of multiprocessing's own
    del started
    wait_until(lambda: open_files() <= before, 5.0)


def test_a_stopped_worker_is_killed(impatient: None) -> None:
    """SIGTERM does not reach a process that is stopped (SIGSTOP, a debugger). SIGKILL does."""
    iterator = iter(loader_of(keys(40)))
    next(iterator)
    started = workers()
    os.kill(started[1].pid, signal.SIGSTOP)
    del iterator
    assert [worker.exitcode for worker in started] == [0, -signal.SIGKILL]


def test_a_loader_that_a_daemon_thread_builds_is_shut_down_at_exit(mains: Mains, tmp_path: Path) -> None:
    """In good order: multiprocessing would terminate its worker, which then could not tidy up."""
    program = """
        from multiprocessing.util import Finalize

        drawing = threading.Event()
        class Waits:
            def __iter__(self):
                yield [0]
                wait_until((FOLDER / "worker").exists)
                drawing.set(), threading.Event().wait()

        def begin(worker_id):
            Finalize(None, (FOLDER / "tidied").touch, exitpriority=1), (FOLDER / "worker").touch()

        loader = minidl.DataLoader(
            range(9), batch_sampler=Waits(), num_workers=1, worker_init_fn=begin, multiprocessing_context="fork"
        )
        threading.Thread(target=list, args=(loader,), daemon=True).start()
        drawing.wait()
    """
    mains.start(program, tmp_path)
    assert mains.end(limit=10) == (0, "") and (tmp_path / "tidied").exists()


def test_a_batch_whose_memory_has_a_name_can_be_passed_on_after_the_epoch(mains: Mains, tmp_path: Path) -> None:
    """Its worker has ended by itself: what it made is main's. (torch's manager removes the name.)"""
    program = """
        import torch.multiprocessing as mp

        mp.set_sharing_strategy("file_system")
        box = mp.SimpleQueue()
        child = mp.get_context("fork").Process(target=lambda: sys.exit(int(box.get())))
        child.start()
        (batch,) = minidl.DataLoader([7], num_workers=1, transport="torch", multiprocessing_context="fork")
        box.put(batch)
        child.join()
        sys.exit(child.exitcode)
    """
    mains.start(program, tmp_path)
    assert mains.end(limit=20) == (7, "")


def test_after_a_stream_no_batch_is_left_to_be_yielded() -> None:
    with emitted() as events:
        list(loader_of(stream(8)))
    assert [value for kind, _, _, _, _, value, _ in events if kind == Kind.SHUTDOWN_BEGIN] == [0]
