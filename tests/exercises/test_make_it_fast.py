"""Exercise 17 is measured: what passes, and what the learner is shown."""

from __future__ import annotations

import random

import pytest

import tracing
from notebooks.exercises.exercise import exercise
from notebooks.exercises.make_it_fast import Steps, differences, orders_alike
from notebooks.exercises.runner import grade
from notebooks.exercises.skeleton import generate
from notebooks.exercises.verdict import Status

WHICH = exercise("17")


def graded(folder, *edits):
    text = generate(WHICH, solved=True)
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = folder / WHICH.file
    path.write_text(text, encoding="utf-8")
    return grade(WHICH, path), path


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
        assert not orders_alike(drawn) and not orders_alike(sharded)
    assert "the files and epoch 2 are" in orders_alike([*drawn[:2], [*range(63, -1, -1)]])


def test_a_worker_that_raises_is_reported_with_its_line(tmp_path):
    verdict, _ = graded(tmp_path, ("values.flatten()", "values.flaten()"))
    assert verdict.finding.mistake == "raises" and "flaten" in verdict.finding.got
    assert "of 17_make_it_fast.py" in verdict.finding.got


def test_a_difference_in_a_later_channel_is_shown_as_one():
    import torch

    from notebooks.exercises.make_it_fast import _recordings

    values = torch.stack([values for values, _ in _recordings()[:8]])
    values[2, 750] += 1
    labels = torch.tensor([label for _, label in _recordings()[:8]])
    finding = next(differences(Steps([(torch.arange(8), values, labels)])))
    assert finding.mistake == "other values" and "recording 2, channel 7, number 50" in finding.got
    assert finding.got != finding.expected


def test_no_advice_is_given_that_would_be_rejected(tmp_path):
    """A report may advise larger batches."""
    loader = "num_workers=4, persistent_workers=True"
    verdict, _ = graded(
        tmp_path, (loader, "num_workers=1"), ("self.labels[index]", "read(self.folder, 'labels.json')[index]")
    )
    assert verdict.finding.mistake == "too slow", verdict
    assert "batch_size" not in verdict.finding.cause and "larger batch" not in verdict.finding.cause
