"""Runs of two ranks, by real processes that exchange by gloo: what is wrong with them together, and which one holds up
the other. Their programs are in tests/tracing/ranks/programs.py."""

from __future__ import annotations

import functools
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import minidl
import tracing
from tests.tracing.ranks.programs import main as record
from tracing.__main__ import main
from tracing.analysis.report.report import Report, report
from tracing.ranks import report as ranks_report
from tracing.ranks.check import AUDITS
from tracing.ranks.hold_up import BETWEEN, LOADER, STEP
from tracing.ranks.ranks import Ranks
from tracing.ranks.steps import Steps, steps_of
from tracing.recording import file_format as fmt
from tracing.views.live.live import watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked")

Recorded = Callable[[str], Path]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """ranks("slow") is the run of that program."""
    folder = tmp_path_factory.mktemp("ranks")

    @functools.cache
    def of(name: str) -> Path:
        record(folder, [name])
        return folder / name

    return of


def report_of(run: Path) -> tracing.RunReport:
    found = tracing.report(run)
    assert isinstance(found, tracing.RunReport)
    return found


def findings(run: Path) -> list[tuple[str, bool | None]]:
    """The name of each finding, and whether it is wrong. All laws must hold in each rank."""
    found = tracing.check(run)
    assert all(isinstance(each, tracing.Finding) and any((each.shown_by or {}).values()) for each in found)
    return [(each.name, each.wrong) for each in found if isinstance(each, tracing.Finding)]


# ---- what is wrong

WRONG, WARNED, EITHER = True, False, None
FOUND = {  # program -> its findings, and what the first one says
    "forgotten": ([("set_epoch", WRONG), ("seeds", WARNED)], "draws its 22 samples in the same order"),
    "forgotten_rebuilt": ([("set_epoch", WRONG)], "call sampler.set_epoch(epoch) before each epoch"),
    "even": ([("set_epoch", WARNED)], "(not for validation)"),
    "same_share": ([("each sample once", WRONG)], "22 samples are loaded again (1 would make the shares equal), 21 by"),
    "too_many_shares": ([("each sample once", WRONG)], "21 of 43 samples are loaded by no rank"),
    "unshared": ([("a share each", EITHER)], "0 and 1 load the same 43 samples with the loader in the same order"),
    "all_of_it": ([("a share each", WARNED)], "each load all 43 samples with the loader"),
    "hangs": ([("equal numbers of batches", WRONG)], "waited for the others in vain"),
    "idle_at_the_end": ([("equal numbers of batches", WARNED)], "in epoch 0 rank 1 has 6 batches, rank 0 4"),
    "seeds": ([("seeds", WARNED)], "the workers of ranks 0 and 1 draw the same random numbers"),
    **{name: ([], "") for name in ("dropped", "left", "own_sampler", "streams", "model_parallel", "reseeded")},
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_wrong_is_found(name: str, ranks: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    """It is an error of `check`, and a note of the report; what may be right is a warning, or both readings."""
    expected, words = FOUND[name]
    assert findings(ranks(name)) == expected
    assert main(["check", str(ranks(name))]) == any(wrong for _, wrong in expected)
    printed, report = capsys.readouterr().out, report_of(ranks(name))
    mark = {WRONG: "", WARNED: "warning: ", EITHER: "right or wrong: "}
    assert words in printed and all(f"{mark[wrong]}{finding}: " in printed for finding, wrong in expected)
    assert report.warnings == sum(wrong is WARNED for _, wrong in expected)
    assert any(words in note for note in report.notes) is any(wrong is not WARNED for _, wrong in expected)


def test_in_a_hang_unequal_numbers_are_a_note(ranks: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    def hung(trace: tracing.Trace) -> Report:
        found = report(trace)
        found.loaders[0].hung = True
        return found

    monkeypatch.setattr(ranks_report, "report_of_trace", hung)
    assert "in epoch 0 rank 1 has 6 batches" in report_of(ranks("idle_at_the_end")).notes[0]


def test_every_audit_finds_something_and_the_page_lists_it() -> None:
    assert {name for found, _ in FOUND.values() for name, _ in found} == AUDITS.keys()
    page = (Path(__file__).parents[3] / "docs/views.md").read_text(encoding="utf-8")
    assert all(f"| {name} | {audit.__doc__} |" in page for name, audit in AUDITS.items())


@pytest.mark.filterwarnings("ignore::tracing.TraceDamage")
@pytest.mark.parametrize("name", ["even", "slow", "streams"])
def test_cut_off_anywhere_a_rank_raises_no_alarm(name: str, ranks: Recorded, tmp_path: Path) -> None:
    """A rank that is still running, or was killed: its file ends early."""
    for n, share in enumerate([0.1, 0.5, 0.9]):
        run = tmp_path / str(n)
        shutil.copytree(ranks(name), run)
        (file, *_) = sorted((run / "parts").glob("rank1-*/events-*.bin"), key=lambda path: -path.stat().st_size)
        size = (file.stat().st_size - fmt.HEADER_SIZE) // fmt.RECORD.size
        with open(file, "r+b") as opened:
            opened.truncate(fmt.HEADER_SIZE + fmt.RECORD.size * int(share * size))
        assert not any(wrong for _, wrong in findings(run))


# ---- which one holds up the other


@pytest.mark.parametrize(
    ("name", "culprit", "because"),
    [("slow", "rank 1", LOADER), ("late", "rank 0", STEP), ("validates", "rank 0", BETWEEN)],
)
def test_the_rank_that_holds_up_the_others_is_named(name: str, culprit: str, because: str, ranks: Recorded) -> None:
    report = report_of(ranks(name))
    assert report.hold_up is not None and (report.hold_up.name, report.hold_up.because) == (culprit, because)
    assert report.opened.rank.name == culprit
    text = str(report)
    assert f"{culprit.capitalize()} holds up the others" in " ".join(text.split())
    assert text.count("Verdict  ") == 1 and text.count("\n  rank ") == 2 and "\n\n\n" not in text
    document = json.loads(report.to_json())
    assert [each["about"]["rank"] for each in document["ranks"]] == [0, 1] and document["opened"] == culprit
    assert document["loaders"] == document["ranks"][int(culprit[-1])]["report"]["loaders"]
    assert document["held_up_by"]["name"] == culprit


def test_ranks_that_do_not_wait_for_each_other_are_not_said_to(ranks: Recorded) -> None:
    report = report_of(ranks("alone"))
    assert not report.synchronised and report.hold_up is None
    assert "Held up" not in str(report) and "for others" not in str(report) and "\n\n\n" not in str(report)


def test_ranks_of_another_host_are_not_compared(ranks: Recorded, tmp_path: Path) -> None:
    """Its clock is another one."""
    run = Path(shutil.copytree(ranks("slow"), tmp_path / "run"))
    (part,) = (run / "parts").glob("rank1-*")
    (part / fmt.DESCRIPTION).write_text(json.dumps({**fmt.description(part), "machine": "another/1"}))
    report = report_of(run)
    assert not report.synchronised and report.notes[0].startswith("Only 1 of 2 ranks are compared")


# ---- drawn


def test_the_timeline_stacks_the_ranks_upon_one_clock(ranks: Recorded, tmp_path: Path) -> None:
    run = Ranks(ranks("slow"))
    figure = tracing.timeline(run, batches=(4, 12))
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()  # the same time at the same place
    labels = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert labels == [["main   training step", "in the loader", "worker 0"]] * 2
    waits = figure.findobj(lambda artist: artist.get_gid() == "waits for other ranks")
    assert figure.axes[0] in [each.axes for each in waits]  # rank 0, which is quick
    (begin, _), *_ = waits[0].get_paths()[0].vertices  # type: ignore[attr-defined]
    zero, began = min(each.trace.start for each in run.all), steps_of(run).began[:, 0]
    assert np.abs((began - zero) / 1e6 - begin).min() < 1  # it waits from when its step begins
    path = tmp_path / "all.png"
    assert main(["timeline", str(ranks("slow")), "-o", str(path)]) == 0 and path.stat().st_size > 10_000


# ---- live


def test_live_shows_one_of_the_ranks(ranks: Recorded) -> None:
    files = io.StringIO(), io.StringIO()
    for rank, file in enumerate(files):
        watch(ranks("slow"), once=True, part=rank, console=Console(file=file, width=100, height=30))
    assert "training" in files[0].getvalue() and files[0].getvalue() != files[1].getvalue()


# ---- steps that are made up, so that what they should show is known exactly


MS = 1_000_000


def made_up(load: np.ndarray, work: np.ndarray, after: np.ndarray, every: int) -> Steps:
    """Each array is (steps, ranks), ms: to load the batch, to train on it, and after the ranks have exchanged
    gradients, in the last of `every` steps; 0: never."""
    asked, began, ended = (np.zeros(load.shape) for _ in range(3))
    now = np.zeros(load.shape[1])
    for i in range(len(load)):
        asked[i] = now
        began[i] = now + load[i]
        exchanged = began[i] + work[i]
        if every and i % every == every - 1:
            exchanged[:] = exchanged.max()
        now = ended[i] = exchanged + after[i]
    numbers = np.tile(np.arange(len(load))[:, None], load.shape[1])
    return Steps(*((times * MS).astype(np.int64) for times in (asked, began, ended)), numbers)


def noise(rng: np.random.Generator, means: list[float], n: int = 100) -> np.ndarray:
    return rng.normal(means, 0.1 * np.abs(means) + 0.2, (n, len(means))).clip(0)


def test_a_rank_whose_batches_come_late_is_waited_for() -> None:
    """Each of the others loses what it has less to load, however many steps the gradients are accumulated over."""
    rng = np.random.default_rng(1)
    load = noise(rng, [2, 12, 2, 2])
    steps = made_up(load, noise(rng, [5] * 4), noise(rng, [1] * 4), every=4)
    lost = (load[:, 1].sum() - load[:, 0].sum()) * MS
    assert steps.synchronised and steps.kept_waiting().argmax() == 1
    assert steps.waited[:, 0].sum() == pytest.approx(lost, rel=0.15) and steps.waited[:, 1].sum() < 0.05 * lost


@pytest.mark.parametrize(("speed", "n"), [(5, 200), (5.5, 40), (5.5, 200), (8, 40), (8, 200)])
def test_ranks_that_do_not_wait_for_each_other_are_told_apart(speed: float, n: int) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        steps = made_up(noise(rng, [2, 2], n), noise(rng, [5, speed], n), noise(rng, [1, 1], n), every=0)
        assert not steps.synchronised and not steps.kept_waiting().any()


@pytest.mark.parametrize("called", [True, False], ids=["set_epoch", "forgotten"])
def test_one_process_alone_can_forget_its_epochs(called: bool, tmp_path: Path) -> None:
    sampler = minidl.DistributedSampler(range(40), num_replicas=2, rank=0, seed=1)
    with tracing.record(tmp_path / "run"):
        for epoch in range(3):
            if called:
                sampler.set_epoch(epoch)
            list(minidl.DataLoader(range(40), 4, sampler=sampler))
    report = tracing.report(tmp_path / "run")
    assert ("call sampler.set_epoch(epoch) before each epoch" in " ".join(report.notes)) is not called
    assert [each for each, _ in findings(tmp_path / "run")] == ["set_epoch"] * (not called)
