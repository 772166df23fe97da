"""A real load for each cause: the report names the right one first, with the right advice; and every number in a reason
is what its events show."""

from __future__ import annotations

import functools
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import minidl
import tracing
from tests.tracing.attached import ATTACHED
from tests.tracing.report_loads import CAUSES, Samples
from tracing.__main__ import main
from tracing.analysis.measure.measures import measure
from tracing.analysis.measure.waited import Verdict
from tracing.analysis.report.evidence import Number, Reason
from tracing.analysis.report.report import LoaderReport
from tracing.trace.words import duration
from tracing.views.timeline import followed_batch, window

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

# What a spawned worker spends on its imports, a second of a core, decides what persistent workers would save. And
# samples that compute show it only if they have a core.
ALONE = ("imports at unpickling", "samples that compute")
EACH_CAUSE = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.alone] * (name in ALONE)) for name in CAUSES]
)
DRAWN = ("one in ten is slow", "imports at unpickling", "a worker slow to exit", "no workers")  # most of the time
DURATION = re.compile(r"\b\d[\d.]* (?:ns|µs|ms|s|min|h)\b")
BATCH = re.compile(r"batch (\d+)\b(?![.\d]* (?:ns|µs|ms|s)\b)(?: on worker (\d+))?")
SHARE = re.compile(r"\b\d+%")


@pytest.fixture(scope="module")
def caused(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tracing.Trace]:
    """caused("bursts") is the trace of that load, recorded once."""
    traces: dict[str, tracing.Trace] = {}

    def of(name: str) -> tracing.Trace:
        if name not in traces:
            traces[name] = CAUSES[name].record(tmp_path_factory.mktemp("cause") / "a run")
            traces[name].about["cpus"] = CAUSES[name].cores
        return traces[name]

    return of


@pytest.fixture(scope="module")
def reported(caused: Callable[[str], tracing.Trace]) -> Callable[[str], tracing.Report]:
    """reported("bursts") is the report of that load."""
    return functools.cache(lambda name: tracing.report(caused(name)))


def judged(found: tracing.Report, name: str) -> LoaderReport:
    """The report of its one loader, which names the right cause and gives the right advice."""
    cause = CAUSES[name]
    (loader,) = found.loaders
    assert loader.verdict is cause.verdict, str(found)
    assert any(cause.next in advice for advice in loader.next[:3]), str(found)
    assert "turns" not in loader.causes_ns, str(found)
    for words in cause.why:
        assert any(words in reason.text for reason in loader.why), str(found)
    return loader


# ---- the right cause, and what to do


@EACH_CAUSE
def test_names_the_cause_and_what_to_do_with_the_right_numbers(
    caused: Callable[[str], tracing.Trace], reported: Callable[[str], tracing.Report], name: str
) -> None:
    loader = judged(reported(name), name)
    verdict = CAUSES[name].verdict
    text = " ".join(str(reported(name)).split())
    words = re.escape(f"Verdict {verdict.value[0].upper()}{verdict.value[1:]}")  # and who or what, in a few words
    assert re.match(rf"{words}( \([^)]+\))?: {loader.share:.0%} of the time", text)
    assert len(loader.why) >= 2
    check_numbers(caused(name), loader)


@pytest.mark.parametrize("name", ["one in ten is slow", "samples that wait", "a slow sampler", "a worker slow to exit"])
def test_torchs_own_loader_is_judged_the_same(tmp_path: Path, name: str) -> None:
    trace = CAUSES[name].record(tmp_path / "run.trace", ATTACHED)
    assert trace.loaders[0].config["package"] == "torch.utils.data"
    judged(tracing.report(trace), name)


# ---- the numbers


def check_numbers(trace: tracing.Trace, loader: LoaderReport) -> None:
    """They are what their events show, and nothing is counted twice: main's time is no longer than the run, a worker's
    no longer than its life."""
    (measures,) = measure(trace)
    assert sum(loader.causes_ns.values()) + loader.main_ns["training"] <= measures.total
    for reason in loader.why:
        assert all(number.ns <= measures.total * max(1, measures.num_workers) for number in reason.numbers), reason.text
        assert len(trace) > max((max(span) for span in reason.spans), default=0), reason.text
        lengths = {id(number): lengths_of(trace, number) for number in reason.numbers}
        for shown in DURATION.findall(reason.text):
            assert shown in durations(reason, lengths), f"{shown}: {reason.text}"
        for shown in SHARE.findall(reason.text):
            assert shown in shares(lengths), f"{shown}: {reason.text}"
        for batch, worker in BATCH.findall(reason.text):
            named = [trace.events[slice(begin, end + 1)] for begin, end in reason.spans]
            assert any(int(batch) in part["task"] for part in named), reason.text
            assert not worker or any(int(worker) in part["worker"][part["task"] == int(batch)] for part in named)


def lengths_of(trace: tracing.Trace, number: Number) -> np.ndarray:
    """How long each of its stretches is, from nothing but the two events that it names."""
    values = trace.events[number.clock].astype(np.int64)
    lengths: np.ndarray = values[number.stretches.last] - values[number.stretches.first]
    assert len(lengths) and (lengths >= 0).all()
    assert number.clock == "time" or (trace.events["kind"][number.stretches.first] < 16).all()  # CPU time rides there
    assert (number.stretches.last >= number.stretches.first).all()
    return lengths


def durations(reason: Reason, lengths: dict[int, np.ndarray]) -> set[str]:
    """What it may contain: sums, means, single stretches."""
    allowed = set()
    for number in reason.numbers:
        each = lengths[id(number)]
        allowed |= {duration(each.sum()), duration(each.sum() / (number.over or len(each)))}
        allowed |= {duration(length) for length in np.sort(each)[-3:]}
    return allowed


def shares(lengths: dict[int, np.ndarray]) -> set[str]:
    sums = [int(each.sum()) for each in lengths.values()]
    return {f"{one / max(1, other):.0%}" for one in sums for other in sums}


@EACH_CAUSE
def test_the_command_at_the_end_shows_the_evidence(
    caused: Callable[[str], tracing.Trace],
    reported: Callable[[str], tracing.Report],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its --from and --to contain the worst moment, and --follow is the batch that main waits for then; a load without
    a problem has no such place."""
    trace, found = caused(name), reported(name)
    (loader,) = found.loaders
    if loader.verdict is Verdict.TRAINING:
        assert loader.look is None and "\nLook" not in str(found)
        return
    (words,) = looks(str(found))
    assert words[:4] == ["python", "-m", "tracing", "timeline"] and Path(words[4]) == trace.path
    since, until = (float(words[words.index(option) + 1]) for option in ("--from", "--to"))
    assert loader.look is not None, str(found)
    begins, ends = ((trace.events["time"][position] - trace.start) / 1e9 for position in loader.look)
    assert 0 <= since <= begins < ends <= until
    assert until - since <= 2 * (ends - begins) + 0.01
    assert words[-2:] == ["--follow", str(loader.look_batch[1])] if loader.look_batch else "--follow" not in words
    if name in DRAWN:
        monkeypatch.chdir(tmp_path)
        main(words[3:])
        assert (tmp_path / "look.png").exists()


def looks(text: str) -> list[list[str]]:
    """The commands behind "Look" in the text of a report, in words."""
    lines = text.replace("\\\n", " ").split("\n")
    return [shlex.split(line)[1:] for line in lines if line.startswith("Look ")]


@pytest.mark.slow
def test_of_several_loaders_each_is_shown_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs, each with a loader to train and one to validate: the second has fewer batches."""
    with tracing.record(tmp_path / "run.trace"):
        loaders = [minidl.DataLoader(Samples(samples, slow), 4, num_workers=1) for samples in (40, 24)]
        for _ in range(2):
            for loader in loaders:
                list(loader)
    found = tracing.report(tracing.load(tmp_path / "run.trace"))
    commands = looks(str(found))
    assert len(commands) == len(found.loaders) == 2
    monkeypatch.chdir(tmp_path)
    for words, each in zip(commands, found.loaders, strict=True):
        assert f"DataLoader {each.loader} (Samples, num_workers=1): " in str(found)
        asked = dict(zip(words[-6::2], words[-5::2], strict=True))
        assert each.look_batch is not None
        epoch, batch = each.look_batch
        assert asked == {"--loader": str(each.loader), "--epoch": str(epoch), "--follow": str(batch)}
        main(words[3:])


@pytest.mark.slow
def test_one_bad_batch_of_many_is_where_the_report_and_the_timeline_point(tmp_path: Path) -> None:
    """Whatever costs most all together: there is nothing worse to see than the one long wait."""
    with tracing.record(tmp_path / "run.trace"):
        list(minidl.DataLoader(Samples(900, one_is_bad), 1, num_workers=2))
    trace = tracing.load(tmp_path / "run.trace")
    (loader,), (measures,) = tracing.report(trace).loaders, measure(trace)
    (bad,) = measures.waits.longest(1).spans
    # If the long wait is more than all else together, it is the verdict's own stretch: where it held up the others.
    assert loader.look_batch == (0, 600), loader.verdict
    assert loader.look is not None and bad[0] <= loader.look[0] < loader.look[1] <= bad[1]
    view = window.select(trace, None, None, None, None, None)
    followed = followed_batch.choose(view, None, None)
    assert view.summed and followed is not None and followed["task"] == 600


def one_is_bad(index: int) -> int:
    time.sleep(2.0 if index == 600 else 0.0)
    return index


def slow(index: int) -> int:
    time.sleep(0.01)
    return index


def test_the_times_in_the_text_are_those_of_the_events(
    caused: Callable[[str], tracing.Trace], reported: Callable[[str], tracing.Report]
) -> None:
    trace = caused("one in ten is slow")
    text = " ".join(str(reported("one in ten is slow")).split())
    places = re.findall(r"([\d.]+)-([\d.]+) s \[events (\d+)-(\d+)\]", text)
    assert len(places) >= 5 and len(set(places)) == len(places)
    for since, until, first, last in places:
        begins, ends = (int(trace.events["time"][int(k)] - trace.start) / 1e9 for k in (first, last))
        assert float(since) <= begins < float(since) + 0.001 + 1e-9
        assert float(until) - 0.001 - 1e-9 < ends <= float(until)
