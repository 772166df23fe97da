"""The capstone: all of the learner's answers at once. They take the place of minidl's functions, and together run the
demo's load; then torch's loader does the same. What is not done yet comes from minidl.

An answer is at work if it is marked as done. Each load has a process of its own, which is ended with all that it has
started if no batch comes for PATIENCE. It sends {"batches": 12} after each batch, {"done": ...} or {"failed": ...} at
the end. Both draw the same random numbers, so the batches must be the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from notebooks.exercises import progress, runner
from notebooks.exercises.exercise import exercise, exercises

BATCH_SIZE, WORKERS, EPOCHS = 8, 2, 2
SECONDS = 60.0  # after which the training stops wherever it is
PATIENCE = 20.0  # seconds without a batch: a hang
# Its functions are those of exercises 5 and 7 again, for loaders that are not in order: this one is.
NOT_HERE = ("08",)
WIDTH = 9.0  # inches, of a picture


class Failed(Exception):
    """The load did not come to its end. The text says what happened."""


@dataclass
class Shown:
    """What the two loads have given."""

    table: Table  # whose functions were at work, and whether their batches are the same
    comparison: str
    pictures: list[Path]
    same: bool  # their batches


def chosen(answers: Path) -> dict[str, str]:
    """{"07": path}: the answers that are put to work."""
    done = progress.done(answers)
    some = [each for each in exercises().values() if each.references and each.id in done and each.id not in NOT_HERE]
    return {each.id: str(answers / each.file) for each in some}


def run_both(answers: Path, say: Callable[[str], Any], files: int) -> Shown:
    """minidl's loader with the answers, then torch's. Raises Failed. The traces are in a folder beside the answers."""
    folder = answers / "together"
    folder.mkdir(parents=True, exist_ok=True)
    at_work = chosen(answers)
    ours, refused = run(at_work, folder / "minidl.trace", False, files, say)
    torchs, _ = run({}, folder / "torch.trace", True, files, say)
    differ = [k for k, (one, other) in enumerate(zip(ours, torchs, strict=False)) if one != other]
    same = ours == torchs
    words = (
        f"yes, all {len(ours)}"
        if same
        else f"no: they differ from batch {[*differ, min(len(ours), len(torchs))][0]} on"
    )
    yours = [number for number in at_work if number not in refused]
    return Shown(_table(yours, refused, words), *_side_by_side(folder), same)


def run(
    answers: dict[str, str], trace: Path, torchs: bool, files: int, say: Callable[[str], Any]
) -> tuple[list[str], dict[str, str]]:
    """Run a load in a process of its own: a digest of each batch, and why answers could not be put to work."""
    name, printed = "torch's loader" if torchs else "minidl's loader", trace.with_suffix(".txt")
    printed.unlink(missing_ok=True)
    ours, process = runner.started(_work, answers, trace, torchs, files, printed)
    say(f"{name}: starting")
    try:
        while ours.poll(PATIENCE):
            message = json.loads(ours.recv_bytes())
            if "done" in message:
                return message["done"], message["refused"]
            if "failed" in message:
                raise Failed(f"{message['failed']}{_last_lines(printed)}")
            say(f"{name}: batch {message['batches']}")
    except EOFError:
        raise Failed(f"Its process has ended without a word.{_last_lines(printed)}") from None
    finally:
        runner.end(process)
        ours.close()
    raise Failed(f"No batch for {PATIENCE:.0f} s: stopped.{_why(trace)}")


def _last_lines(printed: Path, most: int = 8) -> str:
    lines = printed.read_text(encoding="utf-8", errors="replace").splitlines()[-most:] if printed.exists() else []
    return "".join(f"\n  {line[:160]}" for line in lines)


def _why(trace: Path) -> str:
    """What waited for what."""
    import tracing
    from tracing.analysis.hang.explain import explain

    with contextlib.suppress(Exception):  # a trace that just began, or that the answer has damaged
        return f"\n{explain(tracing.load(trace)) or ''}"
    return ""


# ---- in the load's process


def _work(connection: Any, answers: dict[str, str], trace: Path, torchs: bool, files: int, printed: Path) -> None:
    from notebooks.exercises.answers import Answer, NotAttempted, Refused, read

    def send(**message: Any) -> None:
        connection.send_bytes(json.dumps(message).encode())

    runner.on_its_own(printed)
    found: list[Answer] = []
    refused = {}
    for number, path in answers.items():
        try:
            found.append(read(exercise(number), Path(path)))
        except NotAttempted:
            refused[number] = "not written"
        except Refused as reason:
            refused[number] = reason.finding.mistake
    try:
        with contextlib.ExitStack() as stack:
            for each in found:
                stack.enter_context(each.at_work())
            digests = _recorded(trace, torchs, files, lambda batches: send(batches=batches))
    except BaseException as error:  # SystemExit of the learner's code, too
        lines = [f"{each.exercise.id} {each.raised(error)}" for each in found if each.line_of(error)]
        send(failed="\n".join(lines) or f"raised {type(error).__name__}: {error}")
        return
    send(done=digests, refused=refused)


def _recorded(trace: Path, torchs: bool, files: int, beat: Callable[[int], None]) -> list[str]:
    """Train, and record it."""
    import tracing

    with tracing.record(trace):
        return _train(torchs, files, beat)  # the loader is gone when it returns: its end is recorded, too


def _train(torchs: bool, files: int, beat: Callable[[int], None]) -> list[str]:
    """A digest of each batch, in order."""
    import torch
    import torch.utils.data

    import minidl
    from tracing.cli.demo_training import SourceFiles, find_sources, train

    paths = find_sources()
    paths = paths[:: max(1, len(paths) // files)][:files]
    for path in paths:
        path.read_bytes()  # into the system's cache: neither loader finds it colder than the other
    package: Any = torch.utils.data if torchs else minidl
    data = SourceFiles(paths)
    sampler = package.DistributedSampler(data, num_replicas=1, rank=0)
    options: dict[str, Any] = {"sampler": sampler, "num_workers": WORKERS, "persistent_workers": True}
    pins = hasattr(torch, "accelerator") and torch.accelerator.is_available()
    loader = package.DataLoader(data, BATCH_SIZE, pin_memory=pins, **options)
    digests: list[str] = []

    class Noted:
        """The loader; a digest of each of its batches is kept."""

        epoch = 0

        def __iter__(self) -> Any:
            sampler.set_epoch(self.epoch)
            self.epoch += 1
            for batch in loader:
                parts = [
                    f"{name} {tuple(each.shape)}".encode() + each.numpy().tobytes() for name, each in batch.items()
                ]
                digests.append(hashlib.sha256(b"".join(parts)).hexdigest()[:16])
                yield batch

    noted: Any = Noted()
    beat(0)
    for _ in range(EPOCHS):
        for _ in train(noted, SECONDS / EPOCHS):
            beat(len(digests))
    return digests


# ---- what is shown


def _table(yours: list[str], refused: dict[str, str], same: str) -> Table:
    found = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("exercise", "its functions", "whose"):
        found.add_column(name, overflow="fold", min_width=15)
    for each in exercises().values():
        if each.references:
            functions = ", ".join(reference.rpartition(":")[2].rpartition(".")[2] for reference in each.references)
            why = refused.get(each.id, "not in this load" if each.id in NOT_HERE else "")
            whose = "yours" if each.id in yours else f"minidl's{f' ({why})' * bool(why)}"
            found.add_row(
                f"{each.id} {each.name.replace('_', ' ')}", functions, whose, style="" if whose == "yours" else "dim"
            )
    found.add_section()
    found.add_row("", "the same batches as torch's", same, style="bold")
    return found


def _side_by_side(folder: Path) -> tuple[str, list[Path]]:
    """Both runs in words, and their timelines: as wide, and from 0 to the same second."""
    import tracing

    traces = {name: tracing.load(folder / f"{name}.trace") for name in ("torch", "minidl")}
    end = max(trace.duration for trace in traces.values()) / 1e9
    for name, trace in traces.items():
        timeline = tracing.timeline(trace, start=0.0, end=end, follow=False, width=WIDTH)
        timeline.savefig(folder / f"{name}.png", dpi=200)
    return str(tracing.compare(*traces.values())), [folder / f"{name}.png" for name in traces]
