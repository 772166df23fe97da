"""Exercise 17 is measured: what passes, what the learner is shown, and that neither the clock nor the storage can be
fooled."""

from __future__ import annotations

import contextlib
import json
import random
import socket

import pytest

import tracing
from notebooks.exercises.catalogue import far_storage
from notebooks.exercises.exercise import exercise
from notebooks.exercises.grading import grade
from notebooks.exercises.verdict import Status
from tests.exercises.wrong.edits import solved

WHICH = exercise("17")


def graded(folder, *edits):
    text = solved(WHICH)
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = folder / WHICH.file
    path.write_text(text, encoding="utf-8")
    return grade(WHICH, path), path


@pytest.mark.slow
@pytest.mark.timeout(110)
def test_minidls_loader_is_as_good_and_both_reports_are_shown(tmp_path):
    imported = "from torch.utils.data import DataLoader, Dataset"
    verdict, path = graded(tmp_path, (imported, "from minidl import DataLoader, Dataset"))
    assert verdict.status is Status.PASSED, verdict
    before, after = (line for line in verdict.printed if "batches a second" in line)
    assert before.startswith("before") and after.startswith("after")
    was, now = (float(line.split()[1]) for line in (before, after))
    assert now >= 2.5 * was
    assert len(tracing.load(path.with_suffix(".trace")).tasks) == 32  # four epochs of eight batches
    assert len(tracing.load(path.with_suffix(".before.trace")).tasks) == 8


@pytest.mark.full
@pytest.mark.timeout(110)
def test_the_storage_is_read_by_whatever_name_it_is_called(tmp_path):
    names = "import functools\nonce = functools.cache(read)\n\n\nclass Recordings"
    init = "    def __init__(self, folder: Path) -> None:\n"
    verdict, _ = graded(
        tmp_path,
        ("class Recordings", names),
        (init, init.replace(") ->", ", fetch=read) ->") + "        self.fetch = fetch\n"),
        ("self.labels = read(", "self.labels = once("),
        ('f"{index:03}.json"', 'sorted(self.folder.glob("0*.json"))[index]'),  # whole paths, too
        ("read(self.folder, ", "self.fetch(self.folder, "),
    )
    assert verdict.status is Status.PASSED, verdict


def test_orders_that_are_drawn_are_not_alike():
    draw = random.Random(0)
    for _ in range(100):
        drawn = [draw.sample(range(64), 64) for _ in range(4)]
        # What each of four workers draws from recordings that are always its own.
        sharded = [[key for k in range(4) for key in draw.sample(range(k, 64, 4), 16)] for _ in range(4)]
        assert far_storage.orders_alike(drawn) is None and far_storage.orders_alike(sharded) is None
    assert "the files and epoch 2" in far_storage.orders_alike([*drawn[:2], [*range(63, -1, -1)]])


@pytest.mark.timeout(110)
def test_a_worker_that_raises_is_reported_with_its_line(tmp_path):
    verdict, _ = graded(tmp_path, ("values.flatten()", "values.flaten()"))
    assert verdict.finding.mistake == "raises" and "flaten" in verdict.finding.got
    assert "of 17_make_it_fast.py" in verdict.finding.got


@pytest.mark.slow
@pytest.mark.timeout(110)
@pytest.mark.usefixtures("impatient")
def test_an_answer_that_never_ends_is_stopped_with_the_script_beside_it(tmp_path):
    verdict, _ = graded(tmp_path, ("            step(ids, values, labels)", "            sleep(1000)"))
    assert verdict.finding.mistake == "never returns" and "sleep(1000)" in verdict.finding.got


# Each silences the judge in its own process, so only the examination is left. Some need nothing of the kind today.
NO_JUDGE = """
import os, threading
MODULES = vars(sys)["modules"]
if "notebooks" in MODULES:
    object.__setattr__(MODULES["notebooks.exercises.exercise"].exercises()["17"], "grade", lambda answer: None)
"""
READ = 'read(self.folder, f"{index:03}.json")'
KEPT = """
KEPT = {}
def kept(folder, name):  # it is read, but nobody waits for it
    if name in KEPT:
        threading.Thread(target=read, args=(folder, name), daemon=True).start()
        return KEPT[name]
    return KEPT.setdefault(name, read(folder, name))
"""
FILE = """
def file(folder, name):
    threading.Thread(target=read, args=(folder, name), daemon=True).start()
    return json.loads(Path(folder, name).read_text())
"""
REPLY = """
if "notebooks" not in MODULES:
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.write(int(each), b'{"value": null}\\n')
"""
WORKERS = ", num_workers=4, persistent_workers=True"
# name: (what is added, what is got, edits)
CHEATS = {
    "another clock": (
        "import time\nREAL = time.monotonic\ntime.monotonic = time.perf_counter = lambda: REAL() / 10\n"
        "time.sleep = sleep = lambda seconds: None",
        "waits for the storage",
        [(READ, f"[{READ} for _ in range(2)][0]"), (WORKERS, ", num_workers=1")],
    ),
    "the first epoch's values": (KEPT, "with other values", [(READ, READ.replace("read", "kept")), (WORKERS, "")]),
    "the files, which hold the same each time": (FILE, "with other values", [(READ, READ.replace("read", "file"))]),
    "an order that is not drawn": (
        "",
        "the files and epoch 0 have the same batches",
        [("shuffle=True", "shuffle=False")],
    ),
    "steps that are not taken": ("EPOCHS = 1", "the recordings [", []),
    "its own reply": ("import contextlib" + REPLY, "the recordings []", []),
    "the end of its keeper": (
        "if 'notebooks' not in MODULES: os.kill(os.getppid(), 9)",
        "the process that tried it has ended",
        [(READ, f"[{READ} for _ in range(2)][0]"), (WORKERS, ", num_workers=1")],
    ),
}


TRIED = ("steps that are not taken", "its own reply", "the end of its keeper")  # each time; the others by `make full`


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name not in TRIED)) for name in CHEATS]
)
def test_what_saves_time_without_being_faster_does_not_pass_the_examination(name, tmp_path):
    head, got, edits = CHEATS[name]
    verdict, _ = graded(tmp_path, ("class Recordings", f"{NO_JUDGE}{head}\n\n\nclass Recordings"), *edits)
    assert verdict.finding.mistake == "the examination" and got in verdict.finding.got, verdict


@pytest.mark.parametrize(
    "request_",
    [
        *("", "no JSON", "[]", "{}", "3", '{"read": 3}', '{"read": "064.json"}', '{"read": "../labels.json"}'),
        *('{"step": null}', '{"step": [null, [], ""]}', '{"step": [[1e999], [], ""]}', '{"step": [[1], [0], "00"]}'),
        '{"steps": []}',
    ],
)
def test_a_request_that_means_nothing_is_not_answered(request_, tmp_path):
    with far_storage.served(tmp_path, lambda: None) as judged:
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(ConnectionError):
            connection.connect(str(tmp_path / "storage"))
            connection.sendall(request_.encode() + b"\n")
            assert connection.recv(100) == b""
        with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as lines:
            connection.connect(str(tmp_path / "storage"))
            print(json.dumps({"step": [[64], [0], ""]}), file=lines, flush=True)
            assert lines.readline() == "null\n"
    assert judged(None) is not None
