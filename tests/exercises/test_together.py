"""`together`: a real load with all answers at work, beside torch's loader; whatever an answer does, it ends."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from matplotlib.image import imread

import tracing
from notebooks.exercises import __main__ as commands
from notebooks.exercises import answers as files
from notebooks.exercises import together
from notebooks.exercises.exercise import exercise, exercises
from notebooks.exercises.skeleton import generate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(110)]
FEW = "24"  # files: two epochs of three batches


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """The folder that the command takes its answers from."""
    monkeypatch.setattr(files, "ANSWERS", tmp_path)
    return tmp_path


def answer(folder: Path, texts: dict[str, str]) -> None:
    """These texts are the answers, and all of them are marked as done."""
    for number, text in texts.items():
        (folder / exercise(number).file).write_text(text, encoding="utf-8")
    (folder / "progress.json").write_text(json.dumps({"passed": list(texts)}), encoding="utf-8")


def fetches(body: str, head: str = "") -> dict[str, str]:
    text = generate(exercise("01")).replace("raise NotImplementedError", body.replace("\n", "\n        "))
    return {"01": text.replace("from typing", f"{head}\nfrom typing", 1)}


def test_all_answers_work_together_and_the_batches_are_torchs(answers, capsys):
    answer(answers, {each.id: generate(each, solved=True) for each in exercises().values() if each.references})
    (answers / exercise("03").file).write_text("def (")
    assert commands.main(["together", "--files", FEW]) == 0
    said = capsys.readouterr().out
    assert "yes, all 6" in said and "minidl's (syntax" in said and "torch.png" in said
    assert said.count("yours") == len(together.chosen(answers)) - 1, "but for one"
    for name in ("minidl", "torch"):
        trace = tracing.load(answers / "together" / f"{name}.trace")
        assert (trace.tasks["yielded"] >= 0).sum() == 6 and not tracing.check(trace)
        height, width, _ = imread(answers / "together" / f"{name}.png").shape
        assert width == 1800 and height > 700


WRONG = {
    "raises": ("return self.datset[keys]", "", "01 raised AttributeError", "datset"),
    "ends its process": ("os._exit(3)", "import os", "exited unexpectedly", ""),
    "other batches": ("return [self.dataset[key] for key in reversed(keys)]", "", "no: they differ", ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_reported(name, answers, capsys, monkeypatch):
    monkeypatch.setattr(together, "_side_by_side", lambda folder: ("", []))  # drawn above, of right answers
    body, head, *words = WRONG[name]
    answer(answers, fetches(body, head))
    assert commands.main(["together", "--files", FEW]) == 1
    output = capsys.readouterr().out
    assert all(each in output for each in words)


def test_an_answer_that_never_returns_is_stopped(answers, monkeypatch):
    """It stops at a second batch. Patience ends as soon as the trace shows why, however busy the machine is."""
    body = "SEEN.append(keys)\nif len(SEEN) == 2: time.sleep(1000)\nreturn [self.dataset[key] for key in keys]"
    answer(answers, fetches(body, "import time\n\nSEEN = []"))

    def say(text: str) -> None:
        if "batch 1" in text:
            while "time.sleep(1000)" not in together._why(trace):
                time.sleep(0.2)
            monkeypatch.setattr(together, "PATIENCE", 1.0)

    trace = answers / "minidl.trace"
    with pytest.raises(together.Failed, match="No batch for 1 s") as failed:
        together.run(together.chosen(answers), trace, False, int(FEW), say)
    assert "time.sleep(1000)" in str(failed.value)
