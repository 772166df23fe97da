"""The report: the right cause first, numbers that agree with the trace, and honesty about what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minidl
import tracing
from minidl.events import Kind
from tests.tracing import report_loads as loads
from tests.tracing.attached import ATTACHED
from tracing.analysis.measure.cores import Work, cores_used, work
from tracing.analysis.measure.measures import Measures, measure
from tracing.analysis.measure.stages import occupancy
from tracing.analysis.measure.waited import CLOSE, MATTERS, WAITING_CAUSES, Verdict, costs, judge
from tracing.analysis.report.evidence import costs_of_moving, moves_as_torch
from tracing.analysis.report.report import LoaderReport
from tracing.analysis.report.text import LOST, NAMES
from tracing.trace.thread_activity import MainTime
from tracing.trace.words import GLOSSES

Samples = loads.Samples
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tracing.Trace:
    """Two epochs with batches out of order."""
    path = tmp_path_factory.mktemp("report") / "run.trace"
    return loads.record(path, Samples(40, loads.one_in_ten_is_slow), epochs=2, num_workers=2, batch_size=2)


@pytest.fixture(scope="module")
def found(trace: tracing.Trace) -> tracing.Report:
    return tracing.report(trace)


def report_of_one(trace: tracing.Trace) -> LoaderReport:
    """The report of the only loader of a trace."""
    (loader,) = tracing.report(trace).loaders
    return loader


def report_of_failure(
    path: Path, make: Callable[[int], Any], error: type[Exception], match: str = "", **options: Any
) -> tracing.Report:
    """The report of a load whose samples, or workers, raise this error or cause it."""
    with tracing.record(path), pytest.raises(error, match=match):
        list(minidl.DataLoader(Samples(30, make), **options))
    return tracing.report(tracing.load(path))


# ---- what moving batches costs

SENTENCE = "taking batches cost main"


@pytest.mark.slow
@pytest.mark.parametrize("package", [minidl, ATTACHED])
def test_it_is_said_of_batches_that_move_as_torch_moves_them(tmp_path: Path, package: Any) -> None:
    options = {"transport": "torch"} if package is minidl else {}
    trace = loads.record(tmp_path / "run", Samples(20, loads.many_leaves), package=package, **options, num_workers=1)
    loader = report_of_one(trace)
    measures = _measures(trace)
    assert moves_as_torch(measures)
    taken = sum(trace.tasks["result_got"] - trace.tasks["result_arrived"])
    [reason] = costs_of_moving(measures)
    assert reason.text.startswith(SENTENCE) and taken * 0.5 < reason.numbers[0].ns <= taken
    assert loader.verdict is Verdict.MOVING or reason.text in [each.text for each in loader.why]
    way = 'Leave out transport="torch"' if package is minidl else "`python -m tracing run --minidl`"
    assert any(way in advice for advice in loader.next)


# ---- verdicts (of each cause: see test_verdicts.py)


@pytest.mark.alone  # they show it only if they have a core
def test_more_workers_do_not_help_where_the_cores_are_the_limit(tmp_path: Path) -> None:
    """The same load judged as of a machine with the cores it kept busy, and of one with many more."""
    options = {"num_workers": 8, "batch_size": 4, "collate_fn": list}
    trace = loads.record(tmp_path / "run.trace", Samples(320, loads.computes), **options)
    used = cores_used(_measures(trace))
    if trace.about["cpus"] > 4:  # else it had all of them, or what other programs left
        trace.about["cpus"] = max(1, int(used))
    loader = report_of_one(trace)
    assert loader.verdict is Verdict.WORKERS and loader.named in ("the cores are busy", "other programs have the cores")
    assert any("More workers would " in advice for advice in loader.next)
    assert any(f"the workers used {used:.1f} of" in reason.text for reason in loader.why)
    assert not any("num_workers" in promise.options for promise in loader.promises)
    trace.about["cpus"] = 64
    assert report_of_one(trace).named == ""


def test_cores_used_are_cpu_time_by_wall_time(trace: tracing.Trace) -> None:
    clocked = {Kind.FETCH_BEGIN: -1, Kind.FETCH_END: 1, Kind.COLLATE_BEGIN: -1, Kind.COLLATE_END: 1}
    cpu = wall = 0
    for epoch in (0, 1):
        events = trace.events[(trace.events["epoch"] == epoch) & np.isin(trace.events["kind"], list(clocked))]
        cpu += sum(int(event["value"]) * clocked[Kind(event["kind"])] for event in events)
        wall += int(events["time"][-1] - events["time"][0])
    assert (
        cpu / wall <= cores_used(_measures(trace)) < cpu / wall + 0.1
    )  # by the workers' feeder threads, a little more


def test_torchs_warning_is_answered_where_it_would_appear(tmp_path: Path) -> None:
    trace = loads.record(tmp_path / "run.trace", Samples(40, loads.waits), step=0.01, num_workers=1)
    for cores, answered in ((64, False), (1, True)):
        trace.about["cpus"] = cores
        assert ("torch's warning" in " ".join(tracing.report(trace).loaders[0].next)) is answered


@pytest.mark.slow
def test_waiting_for_the_workers_first_batches_is_no_reason_for_more_workers(tmp_path: Path) -> None:
    """Four workers that start one after the other, and then are more than enough."""
    options = {"num_workers": 4, "prefetch_factor": 4, "worker_init_fn": loads.starts_later, "collate_fn": list}
    trace = loads.record(tmp_path / "run.trace", Samples(40, loads.waits), step=0.05, **options)
    measures = _measures(trace)
    assert max(costs(measures).get(each, 0) for each in WAITING_CAUSES) > 2 * MATTERS * measures.total
    loader = report_of_one(trace)
    assert loader.verdict is Verdict.TRAINING, str(loader)


def test_workers_that_compute_and_wait_can_be_more_than_the_cores(tmp_path: Path) -> None:
    trace = loads.record(tmp_path / "run.trace", Samples(60, loads.computes_and_waits), num_workers=2)
    trace.about["cpus"] = 8
    assert work(_measures(trace)) is Work.MIXED
    loader = report_of_one(trace)
    assert loader.verdict is Verdict.WORKERS
    assert any(advice.startswith("They compute, and wait for the rest") for advice in loader.next)


@pytest.mark.slow
def test_training_that_takes_nearly_all_of_the_time_is_the_limit_whatever_else_costs_some(tmp_path: Path) -> None:
    options = {"num_workers": 2, "sampler": loads.SlowSampler(30), "collate_fn": list}  # 10 ms a key, 10 % of a step
    (loader,) = tracing.report(
        loads.record(tmp_path / "run.trace", Samples(30, loads.quick), step=0.1, **options)
    ).loaders
    assert loader.verdict is Verdict.TRAINING and Verdict.SAMPLER in loader.also, str(loader)
    assert any("make the training step faster" in advice for advice in loader.next)
    assert any("% of main's time is training, which is all that your loop does" in advice for advice in loader.next)


def test_a_cause_that_costs_nearly_as_much_is_reported_too(tmp_path: Path) -> None:
    """Slow to begin, and slow to draw."""
    # Lists: what is moved by shared memory waits for a thread of the worker, however busy the machine makes that.
    options = {
        "num_workers": 2,
        "worker_init_fn": loads.imports_first,
        "sampler": loads.SlowSampler(28),
        "collate_fn": list,
    }
    trace = loads.record(tmp_path / "run.trace", Samples(60, loads.quick), **options)
    judgement = judge(_measures(trace))
    ((other, its_cost),) = judgement.close.items()
    assert {judgement.verdict, other} == {Verdict.STARTUP, Verdict.SAMPLER}
    assert CLOSE * judgement.cost <= its_cost <= judgement.cost
    found = tracing.report(trace)
    (loader,) = found.loaders
    assert loader.also == {other: its_cost}
    assert any(advice.startswith(f"Also, {other.value}: ") for advice in loader.next)


@pytest.mark.slow
def test_a_long_start_up_of_a_healthy_load_is_no_problem_of_one_epoch(tmp_path: Path) -> None:
    options = {"num_workers": 2, "worker_init_fn": loads.imports_first, "collate_fn": list, "step": 0.08}
    trace = loads.record(tmp_path / "run.trace", Samples(30, loads.quick), **options)
    loader = report_of_one(trace)
    assert loader.verdict is Verdict.TRAINING
    assert not any("persistent_workers" in advice for advice in loader.next)  # of one epoch there is nothing to save
    trace = loads.record(tmp_path / "two.trace", Samples(30, loads.quick), epochs=2, **options)
    loader = report_of_one(trace)
    assert loader.verdict is Verdict.TRAINING
    assert any(
        "persistent_workers=True starts the workers once, not in each of 2 epochs" in each for each in loader.next
    )


def _running(measures: Measures) -> int:
    return measures.total - measures.spent[MainTime.STARTUP] - measures.spent[MainTime.SHUTDOWN]


# ---- numbers


def test_mains_time_is_divided_without_rest_or_overlap(trace: tracing.Trace) -> None:
    measures = _measures(trace)
    begun = trace.events["time"][np.isin(trace.events["kind"], [Kind.LOADER])]
    ended = trace.events["time"][trace.events["kind"] == Kind.SHUTDOWN_END]
    assert measures.total == int((ended - begun).sum())
    asked = trace.tasks["asked"] - trace.tasks["yielded"]
    assert measures.spent[MainTime.TRAINING] == int(asked[trace.tasks["yielded"] >= 0].sum())
    found = costs(measures)
    assert min(found.values()) >= 0
    assert sum(found.values()) + measures.spent[MainTime.TRAINING] <= measures.total


def test_a_reason_names_the_events_that_show_it(trace: tracing.Trace, found: tracing.Report) -> None:
    events, tasks = trace.events, trace.tasks
    waiting, held_up, busy = found.loaders[0].why
    run, step, wait = waiting.spans
    assert [Kind(events["kind"][position]).name for position in (*run, *step, *wait)] == [
        "LOADER", "SHUTDOWN_END", "YIELDED", "ASKED", "ASKED", "YIELDED",
    ]  # fmt: skip
    following = tasks[(tasks["task"] > 0) & (tasks["yielded"] >= 0)]
    before = {(row["epoch"], row["task"] + 1): row["asked"] for row in tasks}
    requests = [int(row["yielded"] - before[row["epoch"], row["task"]]) for row in following]
    assert int(events["time"][wait[1]] - events["time"][wait[0]]) == max(requests)
    assert waiting.numbers[2].ns == sum(requests)
    assert len(held_up.spans) == 3
    for begin, end in busy.spans[:1]:
        assert (events["kind"][begin], events["kind"][end]) == (Kind.FETCH_BEGIN, Kind.COLLATE_END)
        assert events["task"][begin] == events["task"][end]


def test_queues_agree_with_the_replayed_state(trace: tracing.Trace) -> None:
    """Mean and highest number of batches in the reorder buffer, counted again from trace.state after each event."""
    times = trace.events["time"]
    depths = [sum(len(loader.reorder_buffer) for loader in trace.state(k).loaders) for k in range(len(trace))]
    found = occupancy(_measures(trace), "stored", "released")
    assert found["max"] == max(depths) > 0
    filled = float((np.diff(times) * depths[:-1]).sum())
    assert found["mean"] == pytest.approx(filled / _measures(trace).total, rel=0.01)


def test_the_slowest_batches_come_with_their_keys(found: tracing.Report) -> None:
    slowest = found.loaders[0].slowest
    assert [each["made_ns"] for each in slowest] == sorted((each["made_ns"] for each in slowest), reverse=True)
    assert len(slowest) == 10
    late = {tuple(each["keys"]) for each in slowest[:8]}  # four in each epoch hold a slow sample
    assert late == {(6, 7), (16, 17), (26, 27), (36, 37)}


def _measures(trace: tracing.Trace) -> Measures:
    (measures,) = measure(trace)
    return measures


# ---- text and notes


def test_the_json_agrees_with_the_text(trace: tracing.Trace, found: tracing.Report) -> None:
    document = json.loads(found.to_json())
    assert document["format"] == 1
    (loader,) = document["loaders"]
    assert loader["verdict"] == "hold_up" and loader["sentence"] in " ".join(str(found).split())
    assert loader["batches"] == 40 and loader["epochs"] == 2 and len(loader["workers"]) == 2
    assert all(0 <= event < len(trace) for reason in loader["why"] for span in reason["spans"] for event in span)


def test_the_text_fits_a_terminal(trace: tracing.Trace, found: tracing.Report) -> None:
    lines = [line for line in str(found).split("\n") if str(trace.path) not in line]
    assert max(map(len, lines)) <= 80


def test_every_row_has_its_gloss(recorded: Callable[[str], tracing.Trace]) -> None:
    """In the tables of where time went and of the stages, for loads that between them have all the rows."""
    rows = set()
    for name in ("pinned", "serial", "in_order"):
        found = tracing.report(recorded(name))
        text = " ".join(str(found).split())
        for loader in found.loaders:
            times = [NAMES.get(key, key) for key, ns in loader.main_ns.items() if ns]
            times += [LOST.get(key, key) for key, ns in loader.causes_ns.items() if ns]
            for row in (*loader.stages_ns, *times):
                assert GLOSSES[row] in text
                rows.add(row)
    by_chance = {"hold-up", "prefetch", "moving", "pinning", "workers"}
    assert rows >= set(GLOSSES) - by_chance - {"turns", "shares"}  # the last: see test_culprits


def test_an_error_comes_before_the_verdict(tmp_path: Path) -> None:
    found = report_of_failure(tmp_path / "run.trace", loads.fails, ZeroDivisionError, num_workers=1)
    assert found.loaders[0].named == "no batch was yielded"
    assert "ZeroDivisionError" in found.first_lines()[0] and found.first_lines()[0].startswith("Note: ")


@pytest.mark.parametrize(("workers", "error"), [(2, "KeyError: 'no such image'"), (0, "KeyError('no such image')")])
def test_an_error_is_reported_once_and_in_one_line(tmp_path: Path, workers: int, error: str) -> None:
    found = report_of_failure(tmp_path / "run.trace", loads.no_such_image, KeyError, num_workers=workers)
    (note,) = (each for each in found.notes if "no such image" in each)
    assert found.notes[0] == note and note.startswith("The epoch ended with an error [event ")
    assert note.endswith(f"]: {error}")
    (advice,) = found.loaders[0].next
    where = "on worker" if workers else "in main"
    assert advice.startswith(f"Fix that first: batch 9 {where}") and "(keys [9])" in advice
    assert "The run ended early: see the note. Until then, " in " ".join(str(found).split())


def test_an_error_that_the_training_survives_leaves_the_advice(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run.trace"):
        batches = iter(minidl.DataLoader(Samples(30, loads.no_such_image), num_workers=2))
        for _ in range(9):
            next(batches)
        with pytest.raises(KeyError):
            next(batches)
        list(batches)
    found = tracing.report(tracing.load(tmp_path / "run.trace"))
    assert found.notes[0].startswith("The loader raised, and the training went on") and found.loaders[0].next


def test_a_death_is_reported_once(tmp_path: Path) -> None:
    found = report_of_failure(tmp_path / "run.trace", loads.is_killed, RuntimeError, "killed", num_workers=2)
    (note,) = (each for each in found.notes if "is killed by signal" in each)
    assert found.notes[0] == note and "]: DataLoader worker (pid " in note
    (advice,) = found.loaders[0].next
    assert "was with the worker that died (keys [" in advice


def test_no_batch_is_blamed_for_a_worker_that_dies_at_its_start(tmp_path: Path) -> None:
    options = {"num_workers": 1, "worker_init_fn": loads.is_killed_at_once}
    found = report_of_failure(tmp_path / "run.trace", loads.quick, RuntimeError, "killed", **options)
    (advice,) = found.loaders[0].next
    assert "about to begin, task 0" in found.notes[0] and advice.startswith("Worker 0 had no batch when it died.")


def test_that_main_was_killed_comes_first(tmp_path: Path) -> None:
    found = tracing.report(loads.main_is_killed(tmp_path / "run.trace"))
    assert found.first_lines()[0].startswith("Note: Main was killed in the middle of an epoch, after 6 batches")
    (loader,) = found.loaders
    assert loader.verdict_line.startswith("The run ended early: see the note. Until then, ") and loader.next


def test_an_empty_trace_is_no_error(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run.trace"):
        pass
    text = str(tracing.report(tracing.load(tmp_path / "run.trace")))
    assert text.startswith("No loader was recorded.") and "tracing.attach" in text


def test_a_report_can_be_made_at_any_moment_of_a_run(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run.trace"):
        for number, _batch in enumerate(minidl.DataLoader(Samples(20, loads.quick), num_workers=2), 1):
            (loader,) = tracing.report(tracing.load(tmp_path / "run.trace")).loaders
            assert loader.batches == number


def test_two_loaders_are_judged_apart(tmp_path: Path) -> None:
    with tracing.record(tmp_path / "run.trace"):
        for _batch in minidl.DataLoader(Samples(40, loads.waits), num_workers=2, collate_fn=list):
            pass
        list(minidl.DataLoader(Samples(4, loads.quick)))
    first, second = tracing.report(tracing.load(tmp_path / "run.trace")).loaders
    assert first.verdict is Verdict.WORKERS and first.batches == 40
    assert second.batches == 4 and not second.workers
