"""All of the learner's answers at once: they take the place of minidl's functions, and together run the demo's load,
which torch's loader then runs, too. One picture, one table; what is not answered comes from minidl, and is marked.

An answer is at work if it is marked as done, in progress.json. That costs nothing, and holds unless its file was
changed since: `--check` grades all of them first. Whatever an answer does here, it does in a process of its own, which
is ended with all that it has started if no batch comes for PATIENCE, or with Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notebooks.exercises import progress, together_load
from notebooks.exercises.keeper import ENDING
from notebooks.exercises.together_load import FILES, NOT_HERE, Order, rewritten

PATIENCE = 20.0  # seconds without a batch: a hang


class Failed(Exception):
    """The load did not come to its end. The text says what happened."""


@dataclass
class Load:
    """One of the two runs."""

    trace: Path
    digests: list[str] = field(default_factory=list)  # of each batch, in order
    refused: dict[str, str] = field(default_factory=dict)  # exercise -> why its answer cannot be put to work
    ran: dict[str, int] = field(default_factory=dict)  # reference -> in which processes it ran


def chosen(answers: Path) -> dict[str, str]:
    """{"07": path}: the answers that are put to work."""
    done = progress.done(answers)
    return {each.id: str(answers / each.file) for each in rewritten() if each.id in done and each.id not in NOT_HERE}


def run_both(answers: Path, tell: Callable[[str], Any], files: int = FILES) -> tuple[Load, Load]:
    """minidl's loader with the answers, then torch's. Raises Failed. The traces are in a folder beside the answers."""
    folder = answers / "together"
    folder.mkdir(parents=True, exist_ok=True)
    ours = Order(chosen(answers), folder / "minidl.trace", False, files)
    torchs = Order({}, folder / "torch.trace", True, files)
    return run(ours, lambda text: tell(f"minidl's loader: {text}")), run(torchs, lambda text: tell(f"torch's: {text}"))


def run(order: Order, tell: Callable[[str], Any]) -> Load:
    """Run the load in a process of its own. Raises Failed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["notebooks.exercises.preloaded", "torch._dynamo"])  # the optimiser imports that
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=together_load.start, args=(theirs, order))
    process.start()
    theirs.close()
    try:
        done = _watch(ours, order, tell)
    except TimeoutError:
        _end(process)  # first: then its trace shows a run that was killed, which is judged as one that hung
        raise Failed(f"No batch for {PATIENCE:.0f} s: stopped.{_why(order.directory)}") from None
    finally:
        _end(process)
        ours.close()
    return Load(order.directory, **done)


def _end(process: Any) -> None:
    process.terminate()  # the keeper ends all that was started, then itself
    process.join(ENDING)
    process.kill()
    process.join()


def _watch(connection: Any, order: Order, tell: Callable[[str], Any]) -> dict[str, Any]:
    """What the load reports at its end. Raises Failed, or TimeoutError if no batch comes."""
    begin = time.monotonic()
    tell("starting")
    while connection.poll(PATIENCE):
        try:
            message = json.loads(connection.recv_bytes())
        except EOFError:
            raise Failed(f"Its process has ended without a word.{_last_lines(order.printed)}") from None
        if "done" in message:
            done: dict[str, Any] = message["done"]
            return done
        if "failed" in message:
            said = "\n".join(f"{number} {text}".strip() for number, text in message["failed"].items())
            raise Failed(f"{said}{_last_lines(order.printed)}")
        tell(f"batch {message['batches']} of {order.batches}, {time.monotonic() - begin:.0f} s")
    raise TimeoutError


def _last_lines(printed: Path, most: int = 8) -> str:
    with contextlib.suppress(OSError):
        lines = printed.read_text(encoding="utf-8", errors="replace").splitlines()[-most:]
        return "".join(f"\n  {line[:160]}" for line in lines)
    return ""


def _why(trace: Path) -> str:
    """What waited for what."""
    import tracing
    from tracing.analysis.hang.explain import explain

    with contextlib.suppress(Exception):  # a trace that just began, or that the answer has damaged
        hang = explain(tracing.load(trace))
        return f"\n{hang}" if hang is not None else ""
    return ""
