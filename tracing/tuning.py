"""How many workers? Measured on this machine: other settings of a loader, each with the recorded training step.

    tracing.tune(loader, step)              in Python
    python -m tracing run --try train.py    of any training script

100 batches, or an epoch, show how long the training step takes and how much of that it computes. Then copies of the
loader load in this process, each for some seconds, with a step that computes and sleeps as the recorded one did; or,
without workers, as it does where none compete with it. A replay of these batches says which settings are worth it
(tracing.analysis.whatif).
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import tracing
from minidl import events
from tracing.recording import linux
from tracing.recording.loader_text import drawing_of, line_of_program, where_raised
from tracing.recording.own_files import say

BATCHES, FEWEST = 100, 10  # that show what the training step takes, and in an epoch that is shorter
SECONDS = 10.0  # that each setting is tried for, at most
# Settings tried besides no workers and the recorded one; workers, while twice as many are faster; bytes that they use.
MORE, MOST, ROOM = 4, 32, 2 << 30
AS_GOOD = 0.98  # of the fastest: then the setting with the fewest workers is the best
DRAW = ("sampler", "batch_sampler", "generator")  # of a loader
WATCHED = (events.LOADER, events.EPOCH_BEGIN, events.YIELDED, events.ASKED, events.EPOCH_END)


@dataclass
class Trial:
    """A setting, and how fast batches came."""

    num_workers: int
    prefetch_factor: int  # without workers, it means nothing
    promised: float | None  # batches a second, by the replay; None: it was not replayed
    measured: float = 0.0  # batches a second
    memory: int = 0  # bytes of all workers; what several share is counted once
    recorded: bool = False

    @property
    def options(self) -> str:
        """As arguments of the loader."""
        return f"num_workers={self.num_workers}" + f", prefetch_factor={self.prefetch_factor}" * bool(self.num_workers)


@dataclass
class Tuning:
    """What was tried. `str()` is a table."""

    trials: list[Trial]
    note: str = ""

    @property
    def best(self) -> Trial | None:
        """The fewest workers of those that are nearly the fastest; None: nothing was measured."""
        enough = AS_GOOD * max((each.measured for each in self.trials), default=0.0)
        good = [each for each in self.trials if each.measured >= enough > 0]
        return min(good, key=lambda each: each.num_workers, default=None)

    def __str__(self) -> str:
        rows = [("setting", "batches/s", "promised", "memory", "")]
        for each in self.trials:
            promised = "" if each.promised is None else f"{each.promised:,.1f}"
            measured = f"{each.measured:,.1f}" if each.measured else "-"
            memory = f"{each.memory / 1e6:,.0f} MB" if each.memory else ""
            options = each.options + " (as it is)" * each.recorded
            rows.append((options, measured, promised, memory, "best" if each is self.best else ""))
        lines = [f"{row[0]:<46}" + "".join(f"{cell:>11}" for cell in row[1:]).rstrip() for row in rows]
        if (best := self.best) is not None:
            lines += ["", "Leave it as it is" if best.recorded else f"Change   DataLoader(..., {best.options})"]
        return "\n".join([*lines, *[f"Note     {self.note}"] * bool(self.note)])


class Steps:
    """The recorder in use, which also notes how long each training step of this thread takes."""

    def __init__(self, enough: Callable[[Any], None], batches: int = BATCHES) -> None:
        """`enough` is called once, in `next()`, after training on this many batches of a loader, or its epochs: with
        its loop, or that of another one that has waited longer for batches."""
        self.recorder: Any = events.installed()
        self.owner = os.getpid(), threading.get_ident()
        # number of a loader -> the loader, the line that iterates it, its last event, how long it waited for batches
        # (ns), and of each step how long it took (ns), how long this thread computed, and how long others did
        self.loops: dict[int, Any] = {}
        self._enough, self._batches, self.done = enough, batches, False
        events.install(self.record)
        os.register_at_fork(before=self.stop, after_in_parent=self._go_on)

    def __reduce__(self) -> Any:
        return self.recorder.__self__.__reduce__()  # a worker gets that recorder in its place

    def record(self, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object) -> None:
        mine = kind in WATCHED and self.owner == (os.getpid(), threading.get_ident())
        if mine and kind == events.ASKED and sys.modules["torch"].cuda.is_initialized():
            sys.modules["torch"].cuda.synchronize()  # the step has only begun what it does there
        now = time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns()
        self.recorder(kind, epoch_id, task, worker, queue, value, text)
        number = epoch_id >> 32
        if mine and kind == events.LOADER and number not in self.loops:
            loop = {"number": number, "loader": text, "where": line_of_program(), "last": (kind, now)}
            self.loops[number] = SimpleNamespace(**loop, waited=0, times=[])
        elif mine and number in self.loops:
            self._take(self.loops[number], kind, now)

    def _take(self, loop: Any, kind: int, now: tuple[int, ...]) -> None:
        (before, then), loop.last = loop.last, (kind, now)
        loop.waited += (now[0] - then[0]) * (kind == events.YIELDED)
        if before == events.YIELDED and kind == events.ASKED:
            loop.times.append(np.subtract(now, then))
        # A validation is not what a short epoch is tried for.
        short = kind == events.EPOCH_END and len(loop.times) >= FEWEST and sys.modules["torch"].is_grad_enabled()
        if short or len(loop.times) >= self._batches:
            self.stop()
            self.done = True
            self._enough(max(self.loops.values(), key=lambda each: (len(each.times) >= FEWEST, each.waited)))

    def stop(self) -> None:
        """Get out of the way; also called before a fork."""
        if events.installed() == self.record:
            events.install(self.recorder)

    def _go_on(self) -> None:
        if not self.done and events.installed() == self.recorder:
            events.install(self.record)


def tune(loader: Any, step: Callable[[Any], object], *, batches: int = BATCHES, seconds: float = SECONDS) -> Tuning:
    """Train on the first `batches` batches of a loader (minidl's or torch's), at most an epoch; then try other settings
    of it, each for at most `seconds`. Random states are put back. Ctrl-C ends it with what is known."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace")
        with as_they_were(), tracing.record(path):
            steps = Steps(lambda loop: None, batches)
            for _, batch in zip(range(batches + 1), _copy(loader, loader), strict=False):
                step(batch)
            steps.stop()
        return try_settings(next(iter(steps.loops.values())), path, seconds)


def try_settings(loop: Any, trace: Path, seconds: float) -> Tuning:
    """Try those that a replay of the trace finds good, with these training steps."""
    found, loader = Tuning([]), loop.loader
    times = np.array(loop.times[len(loop.times) // 10 :] or [(0, 0, 0)])  # without the first: they compile, say
    times[:, 2] -= times[:, 1]
    times[:, 2] *= times[:, 2].sum() > times[:, 0].sum() / 4  # else these are not torch's threads
    # Where workers had the cores, steps waited for one, and torch's threads computed while they waited for each other:
    # without workers they take as long as the quick ones did.
    quick = np.quantile(times, 0.25, axis=0) / np.maximum(times.mean(axis=0), 1)
    if times[:, 0].sum() > seconds / 2 * 1e9:  # in this time not all of them would have their turn
        times = times.mean(axis=0, keepdims=True)
    with as_they_were():
        try:
            found.trials, most, strained = _settings(loader, trace, loop.number)
            for each in found.trials:
                say(f"tracing: trying {each.options}")
                trained = times * quick if strained and not each.num_workers else times
                try:
                    each.measured, each.memory = _measure(_copy(loader, each), trained, seconds)
                except Exception as error:  # of the dataset, say: another setting may do
                    found.note = f"{each.options}: {where_raised(error)}"
                # One worker may be no faster than none, and two be. For twice as many there must be memory, too.
                climbs = each.num_workers == 1 or 0 < each.measured == max(trial.measured for trial in found.trials)
                if climbs and each is found.trials[-1] and 0 < each.num_workers < most and each.memory < ROOM:
                    found.trials.append(Trial(min(2 * each.num_workers, most), each.prefetch_factor, None))
        except KeyboardInterrupt:
            found.note = "Ctrl-C ended the trials"
    return found


def in_the_script(loop: Any, recording: Any, ends: bool) -> None:
    """For `run --try`: in the middle of the script's loop, on stderr, since stdout is the script's. Then the script
    goes on, or `ends`."""
    recording.stop()  # what follows is not the script's
    say(f"tracing: {len(loop.times)} training steps at {loop.where} are recorded; now other settings are tried")
    try:
        found = try_settings(loop, recording.path, SECONDS)
        say(f"tracing: {found}".replace("\n", "\n         "))
        if found.note.startswith("Ctrl-C"):  # which the script's own workers have got, too
            raise KeyboardInterrupt
    except Exception as error:  # whatever is special about this loader, the script goes on
        say(f"tracing: they cannot be tried: {error!r}")
    if ends:
        sys.exit(0)


def _settings(loader: Any, trace: Path, number: int) -> tuple[list[Trial], int, bool]:
    """No workers, as it is, and the best for each number of them that a replay finds good; how many may be tried; and
    whether the workers had the cores. (Of a stream no more than recorded, since it is not known whether each worker
    would read its share: unless the program asks which worker it is, and the trace does not show that each reads
    all.)"""
    was, drawing = (loader.num_workers, loader.prefetch_factor or 2), drawing_of(loader)
    found = tracing.whatif(tracing.load(trace), prefetch_factor={2, 4, 8, was[1]}, loader=number)
    rates = {(row.setting.num_workers, row.setting.prefetch_factor): row.batches_per_second for row in found.rows}
    strained = was[0] > 0 and found.recorded.busy > 0.7 * found.cores  # nearly all of them
    most = MOST if len({n for n, _ in rates}) > 1 and drawing.get("asks_worker", drawing["dataset_size"]) else 0
    # Of equal ones, first what is made ahead now, then the cheapest.
    fastest = sorted(rates, key=lambda each: (-float(f"{rates[each]:.2g}"), each[1] != was[1]))
    best_of = {each[0]: each for each in reversed(fastest)}  # for each number of workers
    chosen = {(0, 2), was, *[each for each in fastest if each[0] and each == best_of[each[0]]][:MORE]}
    return [Trial(*each, rates.get(each), recorded=each == was) for each in sorted(chosen)], most, strained


def _copy(loader: Any, setting: Any) -> Any:
    """With the number of workers, and what each makes ahead, of a Trial or a loader."""
    other, data = copy.copy(loader), copy.copy(loader.dataset)
    # Of its own are what the dataset opens, which the script's next workers would share, and what draws.
    own = getattr(data, "__dict__", {})
    own.update({name: copy.deepcopy(each) for name, each in own.items() if "random" in type(each).__module__})
    parts = {of: copy.deepcopy(getattr(loader, of), {id(loader.dataset): data}) for of in DRAW}
    # Not the script's iterator: some classes keep one, and end it when they are gone.
    parts |= {name: None for name, each in vars(loader).items() if hasattr(each, "__next__")}
    parts |= {"dataset": data, "num_workers": setting.num_workers, "prefetch_factor": setting.prefetch_factor}
    parts |= {} if setting.num_workers else {"prefetch_factor": None, "persistent_workers": False, "timeout": 0}
    parts["check_worker_number_rationality"] = lambda: None  # no warning of more workers than cores
    other.__dict__.update(parts)  # so, since a loader that is constructed no longer takes some of these
    return other


def _measure(loader: Any, steps: np.ndarray, seconds: float) -> tuple[float, int]:
    """Batches a second, and the bytes that its workers use. If an epoch ends, its start-up counts, unless workers are
    started only once. ValueError: there is no batch."""
    import torch

    begin = first = time.perf_counter()
    batches, rate, memory, ended = 0, 0.0, 0, True
    while ended and time.perf_counter() < begin + seconds:
        # Not by `iter`: some classes keep the iterator of the script.
        iterator, ended, before = torch.utils.data.DataLoader.__iter__(loader), False, batches
        try:
            for _ in iterator:
                batches += 1
                first = time.perf_counter() if batches == 1 else first
                if batches == 2 * loader.num_workers:  # by now its queues are full
                    memory = sum(linux.memory(worker.pid) for worker in getattr(iterator, "_workers", []))
                _train(*steps[batches % len(steps)])
                if time.perf_counter() > first + seconds and batches > 1:
                    break
            else:
                ended = batches > before
                rate = batches / (time.perf_counter() - begin) * (not loader.persistent_workers)
        except Exception:
            if batches < FEWEST:
                raise
    if not batches:
        raise ValueError("no batch came: can the dataset be loaded only once?")
    return rate or (batches - 1) / (time.perf_counter() - first), memory


def _train(took: float, computed: float, beside: float) -> None:
    """For `took` ns, `computed` of them on a core. If torch's own threads compute beside this one, they do so here."""
    import torch

    begin, mine = time.perf_counter_ns(), time.thread_time_ns()
    values = torch.ones(1 << 15, torch.get_num_threads()) if beside else torch.ones(1 << 12)  # a part for each thread
    while time.thread_time_ns() < mine + computed:
        values.neg_()
    time.sleep(max(0.0, (begin + took - time.perf_counter_ns()) / 1e9))


def as_they_were() -> contextlib.ExitStack:
    """At its end, the random states of the process are restored."""
    import torch

    stack = contextlib.ExitStack()
    stack.enter_context(torch.random.fork_rng(devices=[]))
    stack.callback(random.setstate, random.getstate())
    stack.callback(np.random.set_state, np.random.get_state())
    return stack
