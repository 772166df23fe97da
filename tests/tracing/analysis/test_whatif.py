"""What-if: predictions for other settings, compared with real runs in them.

Nearly all of this happens on the simulated machine, where there is no noise: a load is recorded there in one setting,
predicted for others, and run in those. A few real recordings show that real traces can be replayed, too.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import minidl
import tracing
from minidl.events import Kind
from minidl.world.simulated import Outcome, compute, simulate, sleep
from minidl.world.simulated.machine import current_machine
from tests.minidl.programs import TORCH
from tests.samples import Samples, Stream, dealt, first_of, napping
from tests.tracing import report_loads
from tests.tracing.loads import Recorded
from tests.tracing.report_loads import Makes, Opens, SlowToPin
from tracing.__main__ import main
from tracing.analysis.measure.measures import Measures, measure
from tracing.analysis.measure.waited import Judgement, Verdict
from tracing.analysis.whatif import promises
from tracing.analysis.whatif.durations import UNPICKLED, Durations, Setting
from tracing.analysis.whatif.promises import MOST, Change, Replays, number_of_workers
from tracing.analysis.whatif.replay import Machine, Replay, Thread, fitted
from tracing.analysis.whatif.whatif import Prediction, best, prediction

RECORDED, ONE, AHEAD = Setting(2, 2), Setting(1, 1), Setting(1, 2)


def uneven(index: int) -> float:
    """0.75 to 1.25."""
    return 0.75 + index * 7919 % 13 / 24


def computes(index: int) -> None:
    compute(0.006 * uneven(index))


def sleeps(index: int) -> None:
    sleep(0.01 * uneven(index))


def does_both(index: int) -> None:
    sleep(0.006 * uneven(index + 5))
    compute(0.003 * uneven(index))


def one_in_ten_is_slow(index: int) -> None:
    sleep(0.06 if index % 10 == 7 else 0.006)


def is_quick(index: int) -> None:
    compute(0.002)


def starts_slowly(worker_id: int) -> None:
    sleep(0.1)


@dataclass(frozen=True)
class Load:
    """What is loaded on the simulated machine, and the training step."""

    dataset: Any
    train: Callable[[], None] = lambda: compute(0.001)
    epochs: int = 1
    cpus: float = 2
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, setting: Setting) -> Outcome:
        def program() -> None:
            workers = vars(setting) if setting.num_workers else {"num_workers": 0}
            dataset = copy.deepcopy(self.dataset)  # no run sees what another has changed in it
            loader: minidl.DataLoader[Any] = minidl.DataLoader(dataset, **{**self.options, **workers})
            for _ in range(self.epochs):
                for _batch in loader:
                    self.train()

        outcome = simulate(program, cpus=self.cpus, draws=False, most_steps=10**7)
        assert outcome.error is None and not outcome.deadlock
        return outcome

    def trace(self, setting: Setting = RECORDED) -> tracing.Trace:
        return tracing.load(self.run(setting))

    def rate(self, setting: Setting) -> float:
        """Batches a second, by the events alone. (Epochs follow each other without a pause.)"""
        events = self.run(setting).events
        begin = next(event[0] for event in events if event[2] == Kind.LOADER)
        end = [event[0] for event in events if event[2] == Kind.EPOCH_END][-1]
        return sum(event[2] == Kind.YIELDED for event in events) * 1e9 / (end - begin)


LOADS = {
    "computes": Load(Makes(60, computes)),
    "sleeps": Load(Makes(60, sleeps)),
    "does both": Load(Makes(60, does_both)),
    "one in ten is slow": Load(Makes(60, one_in_ten_is_slow)),
    "slow training": Load(Makes(60, is_quick), lambda: compute(0.008)),
    "computes, trains": Load(Makes(60, computes), lambda: compute(0.003)),
    "pins": Load(Makes(60, sleeps), options={"pin_memory": "host", "collate_fn": SlowToPin}),
    "starts slowly": Load(Makes(60, sleeps), options={"worker_init_fn": starts_slowly}),
    "warms up": Load(Opens(60, sleeps)),
    "four epochs": Load(Makes(30, sleeps), epochs=4, options={"worker_init_fn": starts_slowly}),
}
ALL = LOADS | {
    "fills a buffer": Load(Stream(Makes(40, sleeps, at={0: lambda: sleep(0.5)})), epochs=4),
    "long": Load(Makes(MOST + 60, one_in_ten_is_slow)),
    # No other worker can make its samples.
    "one has a slow shard": Load(Stream(Makes(80, lambda key: sleep(0.02 if key % 2 else 0.004)), dealt)),
}
OTHERS = [Setting(0), *(Setting(workers, prefetch) for workers, prefetch in product((1, 3, 4), (1, 3)))]
STAYS = Setting(2, 2, persistent_workers=True)
# The load, in which setting it is recorded, and in which others it is run, too.
PREDICTED: list[tuple[str, Setting, list[Setting]]] = [
    *((name, RECORDED, OTHERS) for name in LOADS),
    *(
        (name, recorded, [Setting(0), ONE, Setting(3, 3)])
        for name, recorded in product(("sleeps", "slow training"), (Setting(0), Setting(1, 4), Setting(4, 2)))
    ),
    ("four epochs", RECORDED, [STAYS]),
    ("four epochs", STAYS, [RECORDED]),
    ("fills a buffer", AHEAD, [dataclasses.replace(AHEAD, persistent_workers=True)]),  # in each epoch, all the same
    ("one in ten is slow", Setting(2, 1), [Setting(2, 1, False)]),  # in order, some hold up the others
    ("long", RECORDED, [AHEAD]),  # only a part of it is replayed
]


@functools.cache
def simulated(name: str, setting: Setting = RECORDED) -> tracing.Trace:
    """The trace of this load."""
    return ALL[name].trace(setting)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> tracing.Trace:
    """A real trace: its samples wait, and two workers are too few."""
    return record_waiting(tmp_path_factory.mktemp("waiting") / "run.trace")


def record_waiting(path: Path, package: Any = minidl) -> tracing.Trace:
    """In the setting RECORDED, as if on a machine with cores for all."""
    samples = Samples(60, napping(0.055))  # many times what a busy machine adds
    trace = report_loads.record(path, samples, package=package, num_workers=2, batch_size=2)
    trace.about["cpus"] = 8
    return trace


# ---- predictions and runs


@pytest.mark.parametrize(("name", "recorded", "others"), PREDICTED)
def test_other_settings_are_as_predicted(name: str, recorded: Setting, others: list[Setting]) -> None:
    (measures,) = measure(simulated(name, recorded))
    replays = Replays(measures, Judgement(measures))
    for setting in [recorded, *others]:
        rate = prediction(replays, setting).batches_per_second
        assert rate == pytest.approx(ALL[name].rate(setting), rel=0.04), setting
    found = tracing.whatif(simulated(name, recorded), recorded.num_workers, recorded.prefetch_factor)
    assert found.recorded.batches_per_second == pytest.approx(ALL[name].rate(recorded), rel=0.001)
    if name == "long":
        assert found.replayed == MOST and f"{MOST:,} of {MOST + 60:,} batches of" in str(found)


def test_waiting_for_a_core_is_not_taken_for_work() -> None:
    """Four workers on two cores: for half of the time in which it made a batch a worker had no core. With eight cores
    it always has one."""
    (crowded,) = measure(Load(Makes(60, computes)).trace(Setting(4, 2)))
    times = fitted(Durations(crowded)).but(cores=8.0)
    roomy = Load(Makes(60, computes), cpus=8)
    for workers in (1, 2, 4):
        rate = len(times) / Replay(times, Setting(workers)).total
        assert rate == pytest.approx(roomy.rate(Setting(workers)), rel=0.04)


def test_a_workers_first_message_does_not_stand_for_the_others() -> None:
    """Main waits for no other; and the feeder that sends it is just being started."""
    late = {"worker_init_fn": lambda worker: sleep(0.1 * worker)}
    (measures,) = measure(Load(Makes(60, is_quick), lambda: compute(0.008), options=late).trace())
    tasks = measures.tasks
    assert Durations(measures).pickling.max() == 0 < tasks["result_arrived"][1] - tasks["result_put"][1]


def test_main_unpickles_one_batch_after_the_other_and_several_are_on_their_way_at_once() -> None:
    """And those take no core: four of them on two cores."""
    times = Durations(measure(simulated("sleeps"))[0])
    slow = times.but(unpickling=np.full(len(times), 0.02))
    assert Replay(slow, Setting(4)).total > 0.02 * len(times) > Replay(times, Setting(4)).total
    slow = times.but(pickling=np.full(len(times), 0.1))
    assert 0.1 * len(times) / 4 <= Replay(slow, Setting(4)).total < 0.8 * 0.1 * len(times) / 2


def test_helpers_of_the_training_step_leave_the_cores_with_it() -> None:
    machine = Machine(2.0, others=1.0)

    def computes() -> Thread:
        yield from machine.spend(1.0, helpers=2.0)  # four threads on two cores
        assert machine.now == pytest.approx(2.0)
        yield from machine.spend(1.0)
        assert machine.now == pytest.approx(3.0)

    machine.run(computes())
    assert machine.busy == 1.0


def test_an_epoch_half_as_long_as_the_replay_trains_for_half_as_long(waiting: tracing.Trace) -> None:
    """And no longer than the whole epoch takes, wherever the long steps are."""
    (measures,) = measure(waiting)
    times = Durations(measures).but(others=0.0, helpers=0.0)
    for begin in range(0, len(times) - 4, 4):
        training = np.full(len(times), 1e-5)
        training[begin : begin + 4] = 1.0
        run = Replay(times.but(training=training, batches=len(times) // 2), Setting(2))
        assert run.trained == pytest.approx(times.epochs * 2.0, rel=0.01) and run.trained <= run.total


def test_a_neighbour_takes_its_share_of_the_cores_in_every_setting() -> None:
    """Two threads of another program compute all the time. What that makes this one wait is in the recorded durations,
    and must not count again."""

    def train() -> None:
        current_machine().cores.others = 2.0
        compute(0.003)

    noisy = Load(Makes(120, computes), train, cpus=4)
    (measures,) = measure(noisy.trace())
    found = fitted(Durations(measures).but(others=2.0))
    for workers in (1, 2, 4):
        total = Replay(found, Setting(workers)).total
        assert len(found) / total == pytest.approx(noisy.rate(Setting(workers)), rel=0.05), workers


# ---- which is best


def rows(**rates: float) -> list[Prediction]:
    """rows(w2p4=30.0): with 2 workers and prefetch_factor=4, 30 batches a second, of which each takes 40 ms of CPU."""
    settings = [Setting(int(name[1]), int(name[3])) for name in rates]
    return [Prediction(each, rate, 0.0, 0.04 * rate) for each, rate in zip(settings, rates.values(), strict=True)]


@pytest.mark.parametrize(
    ("rates", "cores", "chosen"),
    [
        ({"w1p2": 10.0, "w2p2": 20.0, "w4p2": 30.0}, 8, Setting(4)),
        ({"w2p2": 29.5, "w4p2": 30.0}, 8, Setting(2)),  # about equal: fewer workers
        ({"w2p2": 28.0, "w4p2": 30.0}, 8, Setting(4)),
        ({"w2p2": 30.0, "w2p4": 30.2, "w2p1": 30.1}, 8, Setting(2)),
        ({"w2p2": 30.0, "w2p1": 32.0}, 8, Setting(2, 1)),
        ({"w2p2": 42.0, "w3p2": 46.0, "w4p2": 49.0}, 2, Setting(2)),  # all of them have nearly all cores
        ({"w2p2": 42.0, "w3p2": 46.0, "w4p2": 49.0}, 3, Setting(4)),
    ],
    ids=str,
)
def test_the_best_is_the_cheapest_of_the_fast(rates: dict[str, float], cores: float, chosen: Setting) -> None:
    assert best(rows(**rates), cores).setting == chosen
    assert best(rows(**rates)[::-1], cores).setting == chosen


# ---- real recordings


@pytest.mark.parametrize("package", [minidl, TORCH], ids=["minidl", "torch"])
def test_a_real_load_that_waits(tmp_path: Path, package: Any) -> None:
    """torch's feeder threads record nothing."""
    trace = record_waiting(tmp_path / "run.trace", package)
    assert (trace.events["kind"] == Kind.SENT).any() == (package is minidl)
    found = tracing.whatif(trace, num_workers=(2, 4), prefetch_factor=2)
    was, twice = found[RECORDED].batches_per_second, found[Setting(4)].batches_per_second
    assert was == pytest.approx(found.recorded.batches_per_second, rel=0.2)
    assert 1.1 * was < twice < 2.05 * was and found.best.setting == Setting(4)  # starting them takes a part of it


@pytest.mark.parametrize("name", ["pinned", "not_in_order", "persistent", "two_at_once", "nested", "dying", "serial"])
def test_any_recording_is_replayed(recorded: Recorded, name: str) -> None:
    found = tracing.whatif(recorded(name), num_workers=(0, 2), prefetch_factor=2)
    assert found.recorded.setting in [row.setting for row in found.rows]
    assert all(row.batches_per_second > 0 and 0 <= row.in_loader <= 1 for row in found.rows)
    assert len(found.rows) == len({row.setting for row in found.rows}) >= 2


def test_one_of_several_loaders(recorded: Recorded) -> None:
    trace = recorded("two_at_once")
    numbers = {each.loader for each in trace.index.iterators}
    found = [tracing.whatif(trace, 1, 1, loader=number) for number in sorted(numbers)]
    assert [each.loader for each in found] == sorted(numbers) and not any(noted(each, "loaders") for each in found)
    longest = tracing.whatif(trace, 1, 1)
    assert noted(longest, f"Of 2 loaders this is number {longest.loader}") and longest.loader in numbers
    none = max(numbers) + 1
    with pytest.raises(ValueError, match=f"no loader {none} in this trace: there are"):
        tracing.whatif(trace, loader=none)


# ---- the text


def noted(found: tracing.WhatIf, words: str) -> bool:
    return any(words in note for note in found.notes)


def test_where_the_prediction_for_the_recorded_setting_is_wrong_nothing_is_recommended() -> None:
    """Worker 1 has twice as much to do, and continues alone, which the replay does not know."""
    found = tracing.whatif(Load(Stream(Makes(60, sleeps), first_of(30, 60))).trace(), num_workers=2, prefetch_factor=2)
    rate = found[RECORDED].batches_per_second
    off = rate / found.recorded.batches_per_second - 1
    assert off > 0.2 and noted(found, f"comes out {off:.0%} too fast")
    found.recorded = dataclasses.replace(found.recorded, batches_per_second=2 * rate)
    words = " ".join(str(found).split())
    assert "Best unknown: the replay of the recorded setting itself comes out 50% too slow" in words
    assert words.count("best") == 0
    assert not noted(tracing.whatif(simulated("sleeps"), 1, 1), "comes out")


def test_the_text_has_a_row_for_each_setting() -> None:
    found = tracing.whatif(simulated("sleeps"), num_workers=(0, 1, 4), prefetch_factor=(1, 2))
    head, table = str(found).rstrip().split("\n\n")
    lines = table.splitlines()[1:]
    assert len(lines) == len(found.rows) == 1 + 2 * 2 + 1
    (recorded,) = [line.split() for line in lines if "recorded (measured: " in line]
    assert recorded[:3] == ["2", "2", f"{found[RECORDED].batches_per_second:.1f}"]
    (chosen,) = [line.split() for line in lines if line.endswith("best")]
    assert [int(word) for word in chosen[:2]] == [4, 2] and found.best.setting == Setting(4)
    assert f"{found.best.batches_per_second:.1f} batches a second" in " ".join(head.split())
    assert all(len(line) <= 80 for line in head.splitlines())


def test_a_value_that_no_loader_accepts_is_refused() -> None:
    for workers, prefetch in ((-1, 1), ((1, 2.5), 1), ("12", 1), (1, 0)):
        with pytest.raises(ValueError, match="no loader takes"):
            tracing.whatif(simulated("sleeps"), workers, prefetch)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [0.001, 0.3])
def test_no_workers_are_tried_unless_worker_init_fn_takes_long(seconds: float) -> None:
    load = Load(Makes(60, sleeps), options={"worker_init_fn": lambda worker: sleep(seconds)})
    (measures,) = measure(load.trace())
    assert (0 in number_of_workers(measures, Durations(measures))) is (seconds < 0.1)


def test_what_the_report_asks_for_is_tried(waiting: tracing.Trace) -> None:
    """Even more than eight workers, if it takes those to keep up with the training."""
    (loader,) = tracing.report(waiting).loaders
    (wanted,) = (int(number) for number in re.findall(r"num_workers=(\d+)\. Or ask", loader.next[0]))
    tried = {row.setting.num_workers for row in tracing.whatif(waiting, prefetch_factor=2).rows}
    assert {1, 2, 4, 8, wanted} <= tried and max(tried) > 8


def test_a_trace_with_one_batch_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, words = report_loads.record(tmp_path / "one", range(1)), "fewer than two batches were made"
    assert main(["whatif", str(trace.path)]) == 2
    out, line = capsys.readouterr()
    assert out == "" and line.startswith(f"error: {trace.path}: {words}") and line.count("\n") == 1


# ---- the command


def test_workers_have_a_price_where_none_were_recorded(tmp_path: Path) -> None:
    """What torch's loader spends on moving batches."""
    trace = report_loads.record(tmp_path / "run", TORCH.TensorDataset(torch.rand(300, 8)), package=TORCH, batch_size=2)
    times = Durations(measure(trace)[0])
    moved, many = times.in_setting(1), times.but(tensors=30).in_setting(1)
    assert moved.making_cpu.mean() > times.making_cpu.mean() and moved.unpickling.min() > 0
    assert moved.handling > times.handling and moved.starting and times.in_setting(0) is times
    assert (times.tensors, many.unpickling.min()) == (1, 30 * UNPICKLED)
    assert many.making_cpu.mean() > moved.making_cpu.mean() and many.training.mean() > moved.training.mean()


# ---- the report quotes it


def changes(measures: Measures) -> list[Change]:
    return promises.changes(measures, Judgement(measures))


def test_the_report_quotes_a_replay() -> None:
    trace = simulated("does both")
    (loader,) = tracing.report(trace).loaders
    words = r"num_workers=(\d+) instead of 2, which should save about .* \(replayed: (.*) → (.*) b"
    quoted = re.search(words, loader.next[0])
    assert quoted, loader.next
    was, will_be = float(quoted[2]), float(quoted[3])
    found = tracing.whatif(trace, num_workers=int(quoted[1]), prefetch_factor=2)
    assert was == pytest.approx(found[RECORDED].batches_per_second, abs=0.06)
    assert will_be == pytest.approx(found[Setting(int(quoted[1]))].batches_per_second, abs=0.06)
    assert will_be > was


def test_no_setting_is_quicker_than_its_workers_can_be() -> None:
    """However quick a replay is: as many workers, and more, need at least the time that they were seen to need."""
    (measures,) = measure(simulated("computes"))
    replays = Replays(measures, Judgement(measures))
    assert 0.8 < replays.making / replays.was.num_workers / replays.taken(replays.was) <= 1
    quick = copy.copy(replays.run(replays.was))
    quick.total = 0.001
    replays.run = lambda _: quick
    for workers in (0, 1, 2, 4):
        setting = Setting(workers, 16) if workers else Setting(0)
        assert replays.taken(setting) == (replays.making / workers if workers >= 2 else 0.001)


@pytest.mark.parametrize(("cores", "helpers", "promised"), [(2.0, 0.0, False), (8.0, 0.0, True), (8.0, 7.0, False)])
def test_what_the_first_workers_save_is_not_said_where_they_would_use_most_of_the_cores(
    cores: float, helpers: float, promised: bool
) -> None:
    (measures,) = measure(simulated("computes", Setting(0)))
    replays = Replays(measures, Judgement(measures))
    replays.times = replays.times.but(cores=cores, helpers=helpers)
    found = replays.advice(Setting(2))
    assert (found.saves_ns is not None) is promised and ("`run --try` measures it" in found.text) is not promised


@pytest.mark.parametrize("name", [*LOADS, "one has a slow shard"])
def test_what_is_promised_is_saved(name: str) -> None:
    (measures,) = measure(simulated(name))
    for change in changes(measures):
        rate = ALL[name].rate(dataclasses.replace(RECORDED, **change.options))
        saved = measures.total * (1 - ALL[name].rate(RECORDED) / rate)
        assert change.saves_ns == pytest.approx(saved, rel=0.1), change.text


# ---- what replays cannot know


def test_persistent_workers_finish_what_they_make_when_main_leaves_an_epoch() -> None:
    def program() -> None:
        loader = minidl.DataLoader(Makes(20, lambda index: sleep(0.01 if index < 4 else 1.0)), num_workers=4)
        for _ in range(4):
            for batch in loader:
                if batch >= 3:
                    break

    (measures,) = measure(tracing.load(simulate(program, cpus=8, draws=False)))
    assert Durations(measures).left == 4 and Judgement(measures).verdict is Verdict.SHUTDOWN
    assert not any("persistent_workers" in change.options for change in changes(measures))


@pytest.mark.parametrize(("share", "advised"), [(0.11, False), (0.13, True)])
def test_a_gain_too_small_to_be_replayed_exactly_is_not_advised(
    monkeypatch: pytest.MonkeyPatch, share: float, advised: bool
) -> None:
    """A quarter of it is less than a replay may be off by."""
    (measures,) = measure(simulated("sleeps"))
    replays = Replays(measures, Judgement(measures))
    monkeypatch.setattr(replays, "off", 0.0)
    monkeypatch.setattr(replays, "share_saved", lambda *_: share)
    assert bool(replays.best_first()) is advised
    assert "should save " in replays.advice(Setting(4)).text
