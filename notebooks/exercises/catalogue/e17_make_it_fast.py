"""Exercise 17: make a slow training script fast, without changing what it trains on."""

from __future__ import annotations

import ast
import inspect
import json
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import short
from notebooks.exercises.catalogue import fast_script, slow_script
from notebooks.exercises.catalogue.far_storage import orders_alike
from notebooks.exercises.catalogue.measured_runs import Measured, Steps, measured, running
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.feedback import short_path

TARGET = 2.5  # times as many samples a second as the script that is handed out, measured beside it
CALL = "train(folder)"
OWN = "# ---- yours"
WIDTH = 88  # of the lines of a report in short
NUMBERS = 5  # of recordings that a message lists


def text(solved: bool) -> str:
    """The script below its docstring; when solved, with the fast one's own part."""
    whole = inspect.getsource(slow_script)
    script = whole[whole.index("from __future__") :]
    if not solved:
        return script
    fast = inspect.getsource(fast_script)
    return script[: script.index(OWN)] + fast[fast.index(OWN) :]


def grade(answer: Answer) -> Finding | None:
    tree = ast.parse(answer.path.read_text(encoding="utf-8"))
    finding = _changed(tree) or _not_forked(tree)
    if finding is None and not callable(answer.names.get("train")):
        cause = "Keep `train` where the skeleton has it: it is what is measured."
        finding = Finding("no train()", CALL, "no function train", "def train(folder)", cause)
    if finding is not None:
        return finding
    with running(answer.path.with_suffix(".before.trace")) as before:
        after, steps = measured(answer)
        finding = next(_differences(steps), None)
        return finding if finding is not None else _fast_enough(before(), after)


def _fast_enough(before: Measured, after: Measured) -> Finding | None:
    faster = after.rate / before.rate
    lines = [*_in_short("before", before), *_in_short("after", after)]
    if faster >= TARGET:
        print(*lines, sep="\n")  # shown with the verdict
        return None
    got = f"{faster:.1f} times as many samples a second as the script that was handed out"
    advice = after.lines()[1] or "Look where main and the workers spend their time."
    lines += [f"python -m tracing report {short_path(after.trace)}"]
    return Finding("too slow", f"{CALL}, beside the old one", got, f"{TARGET:g} times as many", advice, seen=lines)


def _in_short(name: str, run: Measured) -> list[str]:
    """Its report in short."""
    rates = f"{run.rate:.1f} samples a second, {run.rate / slow_script.BATCH_SIZE:.1f} batches a second"
    return [f"{name:<8}{rates}", *(f"{'':8}{line}" for line in textwrap.wrap(run.lines()[0], WIDTH))]


# ---- what must stay as it is


def _given(tree: ast.Module) -> dict[str, list[str]]:
    """Name -> each statement at the top of the file that binds it."""
    found: dict[str, list[str]] = {}
    for node in tree.body:
        names = {getattr(node, "name", "")}
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = {each.asname or each.name for each in node.names}
        elif not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            inside = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
            names = {each.id for each in inside if isinstance(each.ctx, ast.Store)}
        for name in names:
            found.setdefault(name, []).append(ast.dump(node))
    return found


def _changed(tree: ast.Module) -> Finding | None:
    """A finding, if what is given is not as it was."""
    script = text(False)
    wanted = _given(ast.parse(script[: script.index(OWN)]))
    has = _given(tree)
    bound = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for name, statements in wanted.items():
        if any(each.startswith("Import") for each in statements):
            continue
        if has.get(name) != statements or name in bound:
            cause = "The files, the storage and the training step are what they are. Change what is below the line."
            return Finding("changes what is given", f"reading {name}", f"another {name}", "the skeleton's", cause)
    return None


def _not_forked(tree: ast.Module) -> Finding | None:
    """A finding, if processes are started in another way: they would import the main program's file, which here is not
    the answer. (What is done only as a main program does not matter.)"""
    for node in (inside for top in tree.body if not isinstance(top, ast.If) for inside in ast.walk(top)):
        if isinstance(node, ast.Constant) and node.value in ("spawn", "forkserver"):
            cause = (
                "In a script of your own this works. The check runs train() within a program of its own, and a process "
            )
            cause += "that is not forked would not find your classes there."
            return Finding(
                "does not fork", f"reading line {node.lineno}", repr(node.value), "'fork', or nothing", cause
            )
    return None


def _expected(number: int) -> tuple[torch.Tensor, int]:
    """A recording's values and label, computed from what the files hold."""
    if not _recordings:
        with tempfile.TemporaryDirectory() as name:
            slow_script.make_files(Path(name))
            files = {each.stem: json.loads(each.read_text()) for each in Path(name).iterdir()}
        calibration, labels = files["calibration"], files["labels"]
        offsets, scales = (torch.tensor(calibration[key]).unsqueeze(1) for key in ("offsets", "scales"))
        for each, label in enumerate(labels):
            values = (torch.tensor(files[f"{each:03}"]) - offsets) / scales
            _recordings.append((values.flatten(), label))
    return _recordings[number]


_recordings: list[tuple[torch.Tensor, int]] = []


def _differences(steps: Steps) -> Iterator[Finding]:
    """What the answer does otherwise than the script that was handed out."""
    if not steps.batches:
        got = "no step was taken here before train() returned"
        cause = (
            "Has train() a `yield`, which makes it a generator? Does it start threads, and not wait for their end? "
            "Does another process take the steps? It trains a copy of the model."
        )
        yield Finding("takes no steps", CALL, got, f"{slow_script.EPOCHS} epochs", cause)
    if steps.at_once:
        got, cause = (
            "two threads were in step() at the same time",
            "Each step begins with the model that the one before ",
        )
        cause += "has left. Let threads load as they like, and one of them take the steps, one after the other."
        yield Finding("steps at the same time", CALL, got, "one step after the other", cause)
    yield from _other_batches(steps.batches)
    order = [int(number) for ids, _, _ in steps.batches for number in ids]
    size, epochs = slow_script.RECORDINGS, slow_script.EPOCHS
    parts = [order[k : k + size] for k in range(0, len(order), size)]
    for k, part in enumerate(parts):
        yield from _other_samples(k, Counter(part))
    if len(parts) != epochs:
        cause = "Each epoch is part of the training: make it faster, do not leave it out."
        yield Finding("another number of epochs", CALL, f"{len(parts)} epochs", f"{epochs} epochs", cause)
    if alike := orders_alike(parts):
        cause = "Recordings that always come in the same order, or in the same batches, train another model: shuffle "
        cause += "all of them, for each epoch."
        yield Finding("does not shuffle", CALL, alike, "an order drawn anew for each epoch", cause)
    if not steps.reads:
        cause = "The recordings come from the storage, and that takes its time: leave that to read()."
        yield Finding("does not use read()", CALL, "no recording was read", "each is read in each epoch", cause)
    kept = [number for number in range(size) if steps.reads[number] < epochs]
    if kept:
        got = f"recording {kept[0]} was read {steps.reads[kept[0]]} times in {epochs} epochs"
        cause = (
            "Here the recordings fit into memory; those of a real training do not. Read each of them in each epoch. "
        )
        cause += "What is the same for all of them may be kept."
        yield Finding("keeps the recordings", CALL, got, "each recording is read in each epoch, with read()", cause)


def _other_batches(batches: list[Any]) -> Iterator[Finding]:
    """Batches of another size, or with other values."""
    size = slow_script.BATCH_SIZE
    for k, (ids, values, labels) in enumerate(batches):
        call, shapes = f"step {k}", [tuple(each.shape) for each in (ids, values, labels)]
        width = slow_script.CHANNELS * slow_script.LENGTH
        exact = not ids.is_floating_point() and not ids.is_complex()
        if shapes != [(size,), (size, width), (size,)] or values.dtype != torch.float32 or not exact:
            got = f"{', '.join(map(str, shapes))}; ids of {ids.dtype}, values of {values.dtype}"
            expected = f"({size},), ({size}, {width}), ({size},); ids of torch.int64, values of torch.float32"
            cause = (
                "Larger batches are fewer steps, and another training. step() says what it takes; torch.Tensor(...) "
            )
            cause += "makes floats of integers, torch.tensor(...) does not."
            yield Finding("other batches", call, got, expected, cause)
        for number, row, label in zip(ids.tolist(), values, labels.tolist(), strict=False):
            if not 0 <= number < slow_script.RECORDINGS:
                yield Finding("other batches", call, f"recording {number}", "0 to 63", "There is no such recording.")
                return
            expected_row, expected_label = _expected(number)
            if label != expected_label or not torch.allclose(row, expected_row, rtol=1e-4, atol=1e-4):
                got = f"recording {number}: label {label}, values {short(row[:3].tolist())}"
                expected = f"label {expected_label}, values {short(expected_row[:3].tolist())}"
                cause = "(number - offset) / scale, each channel with its own; is the label that of this recording?"
                yield Finding("other values", call, got, expected, cause)


def _other_samples(epoch: int, count: Counter[int]) -> Iterator[Finding]:
    """An epoch that does not have every recording once."""
    missing = [number for number in range(slow_script.RECORDINGS) if not count[number]]
    twice = [number for number in count if count[number] > 1]
    if missing:
        words = f"without recordings {', '.join(map(str, missing[:NUMBERS]))}" + ", ..." * (len(missing) > NUMBERS)
        words += f"; recording {twice[0]} came {count[twice[0]]} times" if twice else ""
        cause = "Every recording belongs into every epoch, once. Which part of your code chooses them?"
        yield Finding("skips or repeats samples", f"epoch {epoch}", words, "each recording once", cause)


EXERCISE = Exercise(
    number=17,
    name="make_it_fast",
    title="make it fast",
    references=(),
    text=text,
    task=f"""
    This script trains on 64 recordings, each a file in a storage that takes 20 ms to answer, in four short epochs. It
    is slow, for several reasons at once. Change what is below the line "yours", so that it trains on at least
    {TARGET:g} times as many samples a second.

    It must stay the same training: the same steps, of 8 recordings each, with the same values; every recording once an
    epoch, in an order drawn anew; every recording read from the storage in every epoch. How much faster it is, is
    measured: the check runs your train() and the one you were given side by side, on your machine.

    Begin with a report: `python -m tracing run FILE`, with this file, says what main waits for, and what to change.
    Change one thing, and look again.
    """,
    legend={
        "read(folder, name)": "waits LATENCY, and returns what the file holds; you may call it wherever you like",
        "step(ids, values, labels)": "trains on a batch; call it once for each",
        "DataLoader": "torch's; minidl's can take its place. In the check, workers are forked",
    },
    hints=(
        "Count the calls of read() for a batch: in the worker, and in main. Which of them ask for something that never "
        "changes? While one process waits for the storage, what could others do?",
        "In a report, 'waiting' is main's time until the workers have made a batch: too few of them, or too much work "
        "for each. 'Training' is everything between two batches, so also what train() does before step(). And each "
        "epoch starts its workers anew.",
        "Read calibration.json and labels.json once, in __init__. Let __getitem__ return (index, values, label), with "
        "values = ((torch.tensor(channels) - offsets) / scales).flatten(), offsets and scales of shape (8, 1), and "
        "leave out collate_fn. One DataLoader for all epochs, with num_workers=4 and persistent_workers=True.",
    ),
    grade=grade,
    notebook="12-how-many-workers.ipynb",
)
