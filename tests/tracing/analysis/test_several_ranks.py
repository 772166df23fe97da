"""Runs of two ranks, by real processes that exchange by gloo: what is wrong with them together, and who holds up whom.
Their programs are in tests/tracing/ranks.py."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from rich.console import Console

import tracing
from tests.tracing.ranks import main as record
from tracing.__main__ import main
from tracing.analysis.check.ranks import AUDITS
from tracing.analysis.report.hold_up import BETWEEN, LOADER, STEP
from tracing.trace.ranks import open_ranks
from tracing.views.live.live import watch
from tracing.views.live.ranks import Processes

pytestmark = [pytest.mark.timeout(100), pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked")]

Recorded = Callable[[str], Path]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """ranks("slow") is the run of that program."""
    folder = tmp_path_factory.mktemp("ranks")

    def of(name: str) -> Path:
        if not (folder / name).exists():
            record(folder, [name])
        return folder / name

    return of


def findings(run: Path) -> list[tuple[str, bool | None]]:
    """The name of each finding, and whether it is wrong. All invariants of each rank must hold."""
    found = tracing.check(run)
    assert all(isinstance(each, tracing.Finding) for each in found)
    return [(each.name, each.wrong) for each in found if isinstance(each, tracing.Finding)]


# ---- what is wrong

WRONG, WARNED, EITHER = True, False, None
FOUND = {
    "forgotten": [("set_epoch", WRONG), ("seeds", WARNED)],
    "forgotten_anew": [("set_epoch", WRONG)],
    "same_share": [("each sample once", WRONG)],
    "other_seeds": [("each sample once", WRONG), ("same options", WRONG)],
    "too_many_shares": [("each sample once", WRONG)],
    "even": [("set_epoch", WARNED)],
    "unshared": [("a share each", EITHER)],
    "tensor_parallel": [("a share each", EITHER)],
    "all_of_it": [("a share each", WARNED)],
    "hangs": [("equal numbers of batches", WRONG)],
    "idle_at_the_end": [("equal numbers of batches", WARNED)],
    "seeds": [("seeds", WARNED)],
    "options": [("same options", WARNED)],
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_wrong_is_found(name: str, ranks: Recorded) -> None:
    assert findings(ranks(name)) == FOUND[name]


@pytest.mark.parametrize("name", ["dropped", "left", "own_sampler", "streams", "model_parallel", "reseeded"])
def test_what_is_right_raises_no_alarm(name: str, ranks: Recorded) -> None:
    assert not any(wrong for _, wrong in findings(ranks(name)))


def test_a_finding_names_the_events_that_show_it(ranks: Recorded) -> None:
    run = open_ranks(ranks("unshared"))
    (found,) = tracing.check(ranks("unshared"))
    assert (
        isinstance(found, tracing.Finding)
        and found.shown_by is not None
        and set(found.shown_by) == {"rank 0", "rank 1"}
    )
    drawn = [rank.trace.text(found.shown_by[rank.name][0]) for rank in run.all]
    assert len(drawn[0]) == 4 and drawn[0] == drawn[1]


@pytest.mark.filterwarnings("ignore::tracing.TraceDamage")
@pytest.mark.parametrize("name", ["even", "slow", "streams"])
def test_cut_off_anywhere_a_rank_raises_no_alarm(name: str, ranks: Recorded, tmp_path: Path) -> None:
    """A rank that is still running, or was killed: its file ends early."""
    for n, share in enumerate([0.1, 0.5, 0.9]):
        run = tmp_path / str(n)
        shutil.copytree(ranks(name), run)
        (file, *_) = sorted((run / "parts").glob("rank1-*/events-*.bin"), key=lambda path: -path.stat().st_size)
        size = (file.stat().st_size - 128) // 40
        with open(file, "r+b") as opened:
            opened.truncate(128 + 40 * int(share * size))
        assert not any(wrong for _, wrong in findings(run))


def test_the_command_tells_wrong_from_warned(ranks: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(ranks("same_share"))]) == 1
    assert "1 wrong with the ranks as a whole" in capsys.readouterr().out
    assert main(["check", str(ranks("tensor_parallel"))]) == 0
    assert "right or wrong: a share each: ranks 0 and 1 load the same 43 samples" in capsys.readouterr().out
    assert main(["check", str(ranks("seeds"))]) == 0
    text = capsys.readouterr().out
    assert "warning: seeds: the workers of ranks 0 and 1" in text and "all laws hold" in text


def test_every_audit_finds_something() -> None:
    assert {name for found in FOUND.values() for name, _ in found} == {each.name for each in AUDITS}


# ---- who holds up whom


@pytest.mark.parametrize(
    ("name", "culprit", "because"),
    [("slow", "rank 1", LOADER), ("late", "rank 0", STEP), ("validates", "rank 0", BETWEEN)],
)
def test_the_rank_that_holds_up_the_others_is_named(name: str, culprit: str, because: str, ranks: Recorded) -> None:
    report = tracing.report(ranks(name))
    assert isinstance(report, tracing.RunReport) and report.hold_up is not None
    assert (report.hold_up.name, report.hold_up.because) == (culprit, because)
    assert report.ranks[report.opened].rank.name == culprit
    text = str(report)
    assert f"{culprit.capitalize()} holds up the others" in " ".join(text.split())
    assert text.count("Verdict  ") == 1 and text.count("\n  rank ") == 2
    apart = dataclasses.replace(report, hold_up=None, synchronised=False, warnings=0)  # as of processes without a rank
    assert "\n\n\n" not in text and "\n\n\n" not in str(apart)


def test_what_the_others_lose_is_what_the_batches_take_longer(ranks: Recorded) -> None:
    report = tracing.report(ranks("slow"))
    assert isinstance(report, tracing.RunReport) and report.hold_up is not None
    fast, slow = (tasks for each in report.ranks for tasks in each.rank.tasks_of.values())  # of one loader each
    longer = np.subtract(*(np.sum(each["yielded"][1:] - each["asked"][:-1]) for each in (slow, fast)))
    assert report.hold_up.late_ns[LOADER] == pytest.approx(longer, rel=0.2)
    assert report.hold_up.cost_ns == pytest.approx(sum(report.hold_up.late_ns.values()), rel=0.01)


def test_ranks_that_do_not_wait_for_each_other_are_not_said_to(ranks: Recorded) -> None:
    report = tracing.report(ranks("alone"))
    assert isinstance(report, tracing.RunReport) and not report.synchronised and report.hold_up is None
    assert "Held up" not in str(report)


def test_the_json_has_every_rank_and_the_loaders_of_the_opened_one(
    ranks: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(ranks("slow")), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["rank"] for each in document["ranks"]] == [0, 1] and document["opened"] == "rank 1"
    assert document["loaders"] == document["ranks"][1]["report"]["loaders"]
    assert document["held_up_by"]["name"] == "rank 1" and document["synchronised"]


def test_what_is_wrong_is_a_note_of_the_report(ranks: Recorded) -> None:
    report = tracing.report(ranks("forgotten"))
    assert isinstance(report, tracing.RunReport) and "draws its 22 samples in the same order" in report.notes[0]
    assert report.warnings == 1 and str(report).startswith("Note: ")


def test_ranks_that_load_the_same_samples_may_hold_parts_of_one_model(ranks: Recorded) -> None:
    """Both readings are in one note; equal seeds, which go with it, are no finding of their own."""
    report = tracing.report(ranks("tensor_parallel"))
    assert isinstance(report, tracing.RunReport) and len(report.notes) == 1 and report.warnings == 0
    assert "right if they hold parts of one model" in report.notes[0] and "DistributedSampler" in report.notes[0]
    assert findings(ranks("model_parallel")) == [], "its sampler says that there is one share"


def test_a_rank_that_hung_is_opened(ranks: Recorded) -> None:
    report = tracing.report(ranks("hangs"))
    assert isinstance(report, tracing.RunReport) and "waited for the others in vain" in report.notes[0]


# ---- drawn


def drawn(figure: Figure, gid: str) -> list[Artist]:
    return figure.findobj(lambda artist: artist.get_gid() == gid)


def test_the_timeline_stacks_the_ranks_upon_one_clock(ranks: Recorded) -> None:
    run = open_ranks(ranks("slow"))
    figure = tracing.timeline(run, batches=(4, 12))
    assert [axes.get_xlim() for axes in figure.axes] == [
        figure.axes[0].get_xlim()
    ] * 2  # the same time at the same place
    labels = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert labels == [["main   training step", "in the loader", "worker 0"]] * 2
    waits = [each.axes for each in drawn(figure, "waits for other ranks")]
    assert figure.axes[0] in waits  # rank 0, which is quick
    (begin, _), *_ = drawn(figure, "waits for other ranks")[0].get_paths()[0].vertices  # type: ignore[attr-defined]
    zero, began = min(each.trace.start for each in run.all), run.steps.began[:, 0]
    assert np.abs((began - zero) / 1e6 - begin).min() < 1  # it waits from when its step begins


def test_many_workers_share_a_lane(ranks: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracing.views.timeline.ranks.MOST_LANES", 3)
    figure = tracing.timeline(ranks("seeds"))
    assert [axes.get_yticklabels()[-1].get_text() for axes in figure.axes] == ["2 workers"] * 2
    assert len(drawn(figure, "2 workers fetch")) == 2


def test_ranks_are_chosen_to_be_drawn(ranks: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(tracing.timeline(ranks("slow"), chosen=[1]).axes) == 1
    command = ["timeline", str(ranks("slow")), "-o", str(tmp_path / "all.png")]
    assert main([*command, "--ranks", "0,1"]) == 0 and (tmp_path / "all.png").stat().st_size > 10_000
    assert main([*command, "--ranks", "0,7"]) == 2
    assert capsys.readouterr().err == "error: nothing to draw: of the ranks 0, 7 there are 0, 1\n"


# ---- live


def shown(run: Path, width: int = 100, **options: Any) -> str:
    out = io.StringIO()
    watch(run, once=True, console=Console(file=out, width=width, height=30), **options)
    return out.getvalue()


def test_live_has_a_line_for_each_rank_and_one_opened(ranks: Recorded) -> None:
    first, second = (shown(ranks("slow"), part=rank).splitlines() for rank in (None, 1))
    assert first[1].startswith("▸rank 0 ") and first[2].startswith(" rank 1 ")
    assert second[1].startswith(" rank 0 ") and second[2].startswith("▸rank 1 ")
    assert all("in the loader" in line for line in (*first[1:3], *second[1:3]))
    assert max(map(len, shown(ranks("slow"), width=80).splitlines())) == 80


def test_keys_open_another_rank_at_the_same_moment(ranks: Recorded) -> None:
    now = [0]
    view = Processes(ranks("slow"), None, 1.0, None, lambda: now[0])
    view.look()
    now[0] = 300_000_000
    assert view.look()[1] == view.trace.start + now[0]
    before = view.look()[1]
    for key, name in (("down", "rank 1"), ("down", "rank 0"), ("1", "rank 1"), ("up", "rank 0")):
        view.press(key)
        assert view.opened.name == name and abs(view.look()[1] - before) < 1_000_000
    view.press("space")
    view.press("1")
    assert "‖" in view.mode and view.mode.startswith("rank 1") and view.look()[1] <= before


def test_ranks_that_begin_while_it_watches_are_found(ranks: Recorded, tmp_path: Path) -> None:
    """A launcher records nothing itself, and its ranks begin later."""
    (tmp_path / "trace.json").write_text('{"format": 1}')
    now = [0]
    view = Processes(tmp_path, None, 1.0, lambda: False, lambda: now[0])
    assert view.look()[0].loaders == [] and view.lines(0) == []
    shutil.copytree(ranks("slow") / "parts", tmp_path / "parts")
    now[0] = 2_000_000_000
    state, moment = view.look()
    assert state.loaders and view.opened.name == "rank 0" and len(view.lines(moment)) == 2


def test_outside_a_terminal_live_prints_a_line_for_each_rank(ranks: Recorded) -> None:
    out = io.StringIO()
    watch(ranks("slow"), console=Console(file=out, width=100), speed=1e6)
    assert [line[1:7] for line in out.getvalue().splitlines()[-2:]] == ["rank 0", "rank 1"]
