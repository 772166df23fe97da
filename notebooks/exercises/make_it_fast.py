"""Exercise 17: make a slow training script fast, without changing what it trains on.

The handed-out script and the answer run side by side, so whatever else the machine does slows down both. What is given
does the same in the answer, and also notes what it is asked for.
"""

from __future__ import annotations

import array
import ast
import contextlib
import inspect
import itertools
import json
import multiprocessing
import os
import re
import shutil
import tempfile
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch
import torch.utils.data

from notebooks.exercises import fast_script
from notebooks.exercises import slow_script as given
from notebooks.exercises.exercise import exercise
from notebooks.exercises.verdict import Finding

if TYPE_CHECKING:
    from notebooks.exercises.answers import Answer

TARGET = 2.5  # times as many samples a second as the script that is handed out, measured beside it
EPOCHS_BEFORE = 1  # of the handed-out script: each of its epochs takes as long as any other
CALL = "train(folder)"
OWN = "# ---- yours"
LOOK = 0.2  # seconds between two looks at whether it has ended
WIDTH = 88  # of the lines of a report in short
SOME = 5  # recordings that a message lists


def text(solved: bool) -> str:
    """The script below its docstring; when solved, with the fast one's own part."""
    whole = inspect.getsource(given)
    script = whole[whole.index("from __future__") :]
    if not solved:
        return script
    fast = inspect.getsource(fast_script)
    return script[: script.index(OWN)] + fast[fast.index(OWN) :]


def grade(answer: Answer, beat: Callable[[str], None]) -> Finding | None:
    if not callable(answer.names.get("train")):
        return finding("no train()", CALL, "no function train", "def train(folder)")
    if changed := _changed(answer.path.read_text(encoding="utf-8")):
        return finding("changes what is given", f"reading {changed}", f"another {changed}", "the skeleton's")
    beat("importing")
    _warm_up()
    with running(answer.path.with_suffix(".before.trace")) as before:
        after, steps = measured(answer, beat)
        found = next(differences(steps), None)
        if found is None:
            beat("the script as it was handed out")
            found = _fast_enough(before(beat), after)
    return found


def finding(mistake: str, call: str, got: str, expected: str) -> Finding:
    return Finding(mistake, call, got, expected, exercise(17).causes[mistake])


def _changed(source: str) -> str:
    """The first name of the given part whose statement is not as it was; "": none."""
    script = text(False)
    has = [ast.dump(node) for node in ast.parse(source).body]
    for node in ast.parse(script[: script.index(OWN)]).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) and ast.dump(node) not in has:
            return getattr(node, "name", "") or ast.unparse(node).partition(" =")[0]
    return ""


# ---- two runs


@dataclass
class Measured:
    """A run of train(): how long it took, and a recording of it."""

    trace: Path
    seconds: float = 0.0
    samples: int = 0

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    def report(self, name: str) -> tuple[list[str], str]:
        """In short; and its first advice that the exercise allows."""
        import tracing

        loaders = getattr(tracing.report(tracing.load(self.trace)), "loaders", [])
        rates = f"{name:<8}{self.rate:.1f} samples a second, {self.rate / given.BATCH_SIZE:.1f} batches a second"
        if not loaders:
            return [rates, f"{'':8}no DataLoader was iterated"], ""
        first = loaders[0]
        share = f"{first.main_ns['training'] / sum(first.main_ns.values()):.0%}"
        words = f"{first.verdict_line} Your loop, between two batches, takes {share} of it."
        advice = [each for each in first.next if "batch_size" not in each and "larger batch" not in each.lower()]
        return [rates, *(f"{'':8}{line}" for line in textwrap.wrap(words, WIDTH))], (advice or [""])[0]


@dataclass
class Steps:
    """What the answer's steps were given, and how often each recording was read."""

    batches: list[tuple[Any, Any, Any]] = field(default_factory=list)  # ids, values, labels
    reads: Counter[int] = field(default_factory=Counter)


def _warm_up() -> None:
    """What happens once in a process, such as imports, is in neither time: both are forked, or go on, from here."""
    import tracing

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="recordings-") as name, tracing.record(Path(name, "trace")):
        list(torch.utils.data.DataLoader(range(2), num_workers=1))  # type: ignore[arg-type]
    labels = torch.zeros(given.BATCH_SIZE, dtype=torch.int64)
    given.step(labels, torch.zeros(given.BATCH_SIZE, given.CHANNELS * given.LENGTH), labels)


@contextlib.contextmanager
def running(trace: Path) -> Iterator[Callable[[Callable[[str], None]], Measured]]:
    """The handed-out script runs in a process of its own. Yields a function that waits for its end."""
    shutil.rmtree(trace, ignore_errors=True)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_before, args=(trace, theirs))
    process.start()
    theirs.close()

    def result(beat: Callable[[str], None]) -> Measured:
        while not ours.poll(LOOK):
            beat("the script as it was handed out")
        return Measured(trace, *ours.recv())

    try:
        yield result
    finally:
        with contextlib.suppress(psutil.Error):  # it has ended by itself, or is in the middle of an epoch
            for each in psutil.Process(process.pid).children(recursive=True):
                each.kill()
        process.kill()
        process.join()


def _before(trace: Path, connection: Any) -> None:
    import tracing

    given.EPOCHS = EPOCHS_BEFORE
    with tempfile.TemporaryDirectory(prefix="recordings-") as name, tracing.record(trace):
        given.make_files(Path(name))
        begin = time.perf_counter()
        given.train(Path(name))
        seconds = time.perf_counter() - begin
    connection.send((seconds, EPOCHS_BEFORE * given.RECORDINGS))


def measured(answer: Answer, beat: Callable[[str], None]) -> tuple[Measured, Steps]:
    """Run the answer's train(), here. Whatever it raises comes through."""
    import tracing

    after, steps = Measured(answer.path.with_suffix(".trace")), Steps()
    with tempfile.TemporaryDirectory(prefix="recordings-") as name, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores: meant
        folder, log = Path(name, "files"), Path(name, "reads")
        folder.mkdir()
        given.make_files(folder)
        with _noted(answer, steps, log, beat), tracing.record(after.trace):
            beat(CALL)
            begin = time.perf_counter()
            answer.names["train"](folder)
            after.seconds = time.perf_counter() - begin
        steps.reads.update(array.array("q", log.read_bytes()).tolist())
    after.samples = sum(len(ids) for ids, _, _ in steps.batches)
    return after, steps


@contextlib.contextmanager
def _noted(answer: Answer, steps: Steps, log: Path, beat: Callable[[str], None]) -> Iterator[None]:
    """read() and step() of the answer also note what they are asked for. Their bodies are exchanged, so it does not
    matter by which name they are called."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # workers inherit it; such a write is in one piece

    def read(folder: Path, name: str) -> Any:
        if number := re.fullmatch(r"(\d+)\.json", Path(name).name):
            os.write(file, array.array("q", [int(number[1])]).tobytes())
        return given.read(folder, name)

    def step(ids: Any, values: Any, labels: Any) -> float:
        beat(f"{CALL}, step {len(steps.batches)}")
        # Copies: the answer may use the memory again.
        steps.batches.append(tuple(torch.as_tensor(each).clone() for each in (ids, values, labels)))  # type: ignore[arg-type]
        return given.step(ids, values, labels)

    def forward(*arguments: Any, instead: Callable[..., Any], **named: Any) -> Any:
        return instead(*arguments, **named)

    for name, function in (("read", read), ("step", step)):
        own = answer.names[name]
        own.__code__, own.__kwdefaults__ = forward.__code__, {"instead": function}
    try:
        yield
    finally:
        os.close(file)


def _fast_enough(before: Measured, after: Measured) -> Finding | None:
    (was, _), (now, advice) = before.report("before"), after.report("after")
    if after.rate >= TARGET * before.rate:
        print(*was, *now, sep="\n")  # shown with the verdict
        return None
    got = f"{after.rate / before.rate:.1f} times as many samples a second as the script that was handed out"
    found = finding("too slow", f"{CALL}, beside the old one", got, f"{TARGET:g} times as many")
    found.cause = advice or found.cause
    found.seen = [*was, *now, f"python -m tracing report {after.trace}"]
    return found


# ---- what must stay as it is


def differences(steps: Steps) -> Iterator[Finding]:
    """What the answer does otherwise than the script that was handed out."""
    size, epochs = given.RECORDINGS, given.EPOCHS
    if not steps.batches:
        yield finding("takes no steps", CALL, "no step was taken here before train() returned", f"{epochs} epochs")
    yield from _other_batches(steps.batches)
    order = [int(number) for ids, _, _ in steps.batches for number in ids]
    parts = [order[k : k + size] for k in range(0, len(order), size)]
    for k, part in enumerate(parts):
        count = Counter(part)
        if missing := [number for number in range(size) if not count[number]]:
            got = f"without recordings {', '.join(map(str, missing[:SOME]))}{', ...' * (len(missing) > SOME)}"
            yield finding("skips or repeats samples", f"epoch {k}", got, "each recording once")
    if len(parts) != epochs:
        yield finding("another number of epochs", CALL, f"{len(parts)} epochs", f"{epochs} epochs")
    if alike := orders_alike(parts):
        yield finding("does not shuffle", CALL, alike, "an order drawn anew for each epoch")
    for number in range(size):
        if steps.reads[number] < epochs:
            got = f"recording {number} was read {steps.reads[number]} times in {epochs} epochs"
            yield finding("keeps the recordings", CALL, got, "each recording is read in each epoch, with read()")


def orders_alike(epochs: list[list[int]]) -> str:
    """Two epochs, or an epoch and the files, of which more than half have the same neighbours, or half of whose batches
    are the same. Of orders that are drawn, hardly any have."""
    orders = {"the files": [*range(given.RECORDINGS)]} | {f"epoch {k}": order for k, order in enumerate(epochs)}
    seen: list[tuple[str, set[Any], set[Any]]] = []
    for name, order in orders.items():
        size = given.BATCH_SIZE
        batches = {frozenset(order[k : k + size]) for k in range(0, len(order), size)}
        neighbours = {frozenset(pair) for pair in itertools.pairwise(order)}
        for other, its_batches, its_neighbours in seen:
            if 2 * len(batches & its_batches) >= len(batches) or 2 * len(neighbours & its_neighbours) > len(neighbours):
                return f"{other} and {name} are in the same order, or nearly so, or have the same batches"
        seen.append((name, batches, neighbours))
    return ""


def _other_batches(batches: list[Any]) -> Iterator[Finding]:
    """Batches of another size, or with other values."""
    size, width = given.BATCH_SIZE, given.CHANNELS * given.LENGTH
    right = _recordings()
    for k, (ids, values, labels) in enumerate(batches):
        shapes = [tuple(each.shape) for each in (ids, values, labels)]
        exact = not ids.is_floating_point() and not ids.is_complex()
        if shapes != [(size,), (size, width), (size,)] or values.dtype != torch.float32 or not exact:
            got = f"{', '.join(map(str, shapes))}; ids of {ids.dtype}, values of {values.dtype}"
            expected = f"({size},), ({size}, {width}), ({size},); ids of torch.int64, values of torch.float32"
            yield finding("other batches", f"step {k}", got, expected)
            return
        for number, row, label in zip(ids.tolist(), values, labels.tolist(), strict=True):
            if not 0 <= number < given.RECORDINGS:
                yield finding("other batches", f"step {k}", f"recording {number}", f"0 to {given.RECORDINGS - 1}")
                return
            wanted, wanted_label = right[number]
            if label != wanted_label:
                what = f"recording {number}: label"
                yield finding("other values", f"step {k}", f"{what} {label}", f"{what} {wanted_label}")
            far = (~torch.isclose(row, wanted, rtol=1e-4, atol=1e-4)).nonzero().flatten().tolist()
            if far:
                what = f"recording {number}, channel {far[0] // given.LENGTH}, number {far[0] % given.LENGTH}:"
                yield finding("other values", f"step {k}", f"{what} {row[far[0]]:.4f}", f"{what} {wanted[far[0]]:.4f}")


def _recordings() -> list[tuple[torch.Tensor, int]]:
    """Each recording's values and label, computed from what the files hold."""
    with tempfile.TemporaryDirectory() as name:
        given.make_files(Path(name))
        files = {each.stem: json.loads(each.read_text()) for each in Path(name).iterdir()}
    offsets, scales = (torch.tensor(files["calibration"][key]).unsqueeze(1) for key in ("offsets", "scales"))
    labels = files["labels"]
    return [((torch.tensor(files[f"{k:03}"]) - offsets).div(scales).flatten(), label) for k, label in enumerate(labels)]
