"""`together`: a real load with all answers at work, beside torch's loader; whatever an answer does, it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from matplotlib.image import imread

import tracing
from notebooks.exercises import __main__ as commands
from notebooks.exercises import together
from notebooks.exercises.exercise import exercise, exercises
from notebooks.exercises.skeleton import generate
from notebooks.exercises.together_load import NOT_HERE, Order, rewritten
from notebooks.exercises.together_shown import title, whose
from tests.exercises.wrong.edits import solved

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FEW = "24"  # files: two epochs of three batches


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """The folder that the command takes its answers from."""
    monkeypatch.setattr(commands, "ANSWERS", tmp_path)
    monkeypatch.setattr("notebooks.exercises.answers.provide_all.__defaults__", (tmp_path,))
    return tmp_path


def answer(folder: Path, texts: dict[str, str]) -> None:
    """These texts are the answers, and all of them are marked as done."""
    for number, text in texts.items():
        (folder / exercise(number).file).write_text(text, encoding="utf-8")
    (folder / "progress.json").write_text(json.dumps({"passed": list(texts)}), encoding="utf-8")


def fetches(body: str, head: str = "") -> dict[str, str]:
    return {"01": solved(exercise("01"), fetch=body).replace("from typing", f"{head}\nfrom typing", 1)}


@pytest.mark.timeout(180)
def test_without_answers_all_comes_from_minidl_and_the_batches_are_torchs(answers, capsys):
    assert commands.main(["together", "--files", FEW]) == 0
    text = (answers / "together" / "table.txt").read_text()
    assert text.count("yours") == 2, "in the heading and in the caption, however they are folded; of no exercise"
    assert "yes, all 6" in text and "timelines.png" in capsys.readouterr().out
    for name in ("minidl", "torch"):
        trace = tracing.load(answers / "together" / f"{name}.trace")
        assert (trace.tasks["yielded"] >= 0).sum() == 6 and not tracing.check(trace)
    height, width, _ = imread(answers / "together" / "timelines.png").shape
    assert width == 1800 and height > 1500


@pytest.fixture(scope="module")
def torchs(tmp_path_factory):
    """The load by torch's loader."""
    return together.run(Order({}, tmp_path_factory.mktemp("torch") / "trace", True, int(FEW)), lambda text: None)


@pytest.mark.timeout(180)
def test_all_answers_work_together(answers, torchs):
    answer(answers, {each.id: generate(each, solved=True) for each in exercises().values() if each.references})
    ours = together.run(Order(together.chosen(answers), answers / "trace", False, int(FEW)), lambda text: None)
    assert ours.digests == torchs.digests and len(ours.digests) == 6 and not ours.refused
    owners = whose(ours, answers)
    assert set(owners.values()) == {"yours"} and len(owners) == len(rewritten()) - len(NOT_HERE)
    assert "Yours: 01, 02" in title(ours, torchs, answers) and "from minidl" not in title(ours, torchs, answers)
    ran = {name.rpartition(":")[2].rpartition(".")[2] for name, places in ours.ran.items() if places}
    assert {"collate", "loop", "_receive", "_resume_workers", "tell_workers_to_stop", "grant"} <= ran
    assert "check_health" not in ran  # nobody died, and no batch took so long


@pytest.mark.timeout(180)
def test_an_answer_that_is_not_done_or_does_not_load_is_minidls(answers):
    answer(answers, {"01": "def (", "02": solved(exercise("02")), "03": exercise("03").skeleton.read_text()})
    (answers / exercise("04").file).write_text(solved(exercise("04")))
    ours = together.run(Order(together.chosen(answers), answers / "trace", False, int(FEW)), lambda text: None)
    owners = whose(ours, answers)
    assert [owners[number] for number in ("01", "02", "03", "04")] == [
        "minidl's (syntax error)", "yours", "minidl's (not written)", "minidl's",
    ]  # fmt: skip
    assert title(ours, ours, answers).startswith("Yours: 02; from minidl: 01, 03, 04, 05")


WRONG = {
    "raises": ("return self.datset[keys]", "", "01 raised AttributeError", "datset"),
    "ends its process": ("os._exit(3)", "import os", "exited unexpectedly", ""),
    "ends main": ("return []", "import os\nos._exit(3)", "has ended without a word", ""),
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_does_not_hang_the_command(name, answers, capsys):
    body, head, *words = WRONG[name]
    answer(answers, fetches(body, head))
    assert commands.main(["together", "--files", FEW]) == 1
    output = capsys.readouterr().out
    assert all(each in output for each in words) and "together --check" in output


@pytest.mark.timeout(180)
def test_an_answer_that_never_returns_is_stopped(answers, monkeypatch):
    """It stops at a worker's second batch. From the first on no batch takes long."""
    body = "SEEN.append(keys)\nif len(SEEN) == 2: time.sleep(1000)\nreturn [self.dataset[key] for key in keys]"
    answer(answers, fetches(body, "import time\n\nSEEN = []"))

    def tell(text: str) -> None:
        if text.startswith("batch"):
            monkeypatch.setattr(together, "PATIENCE", 3.0)

    with pytest.raises(together.Failed, match="No batch for 3 s") as failed:
        together.run(Order(together.chosen(answers), answers / "trace", False, int(FEW)), tell)
    assert "time.sleep(1000)" in str(failed.value)


@pytest.mark.timeout(180)
def test_other_batches_are_reported(answers, capsys):
    answer(answers, fetches("return [self.dataset[key] for key in reversed(keys)]"))
    assert commands.main(["together", "--files", FEW]) == 1
    assert "no: they differ from batch 0 on" in (answers / "together" / "table.txt").read_text()


@pytest.mark.timeout(110)
def test_ctrl_c_leaves_no_process(tmp_path):
    answer(tmp_path, fetches(f"open({str(tmp_path / 'fetches')!r}, 'w').close()\ntime.sleep(1000)", "import time"))
    environment = {**os.environ, "MINIDL_ANSWERS": str(tmp_path)}
    command = [sys.executable, "-m", "notebooks.exercises", "together", "--files", FEW]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as running:
        while not (tmp_path / "fetches").exists():  # the test's limit ends it
            assert running.poll() is None
            time.sleep(0.02)
        family = psutil.Process(running.pid).children(recursive=True)
        assert len(family) >= 5  # the forkserver, the keeper, main, two workers
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=30)
    assert running.returncode == 130 and "stopped" in output
    _, left = psutil.wait_procs(family, timeout=10)
    assert not left
