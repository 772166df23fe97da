"""What a loader shows, run from the same seeds: so that minidl's and torch's can be compared.

Legend
    loaders   minidl or torch.utils.data: whose DataLoader runs
    parts     minidl or torch.utils.data: whose datasets, samplers and collate functions it is given
    Config    one configuration of a loader, in names; `observe` runs it and returns what it showed
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import torch

import minidl
from minidl import events
from tests.minidl.programs import DATASETS, SAMPLINGS, TORCH

PATIENCE = 40  # calls of next() before a pass counts as endless


@contextlib.contextmanager
def recorder(record: events.Recorder) -> Iterator[None]:
    """`emit` calls `record`, while the block runs."""
    previous = events.install(record)
    try:
        yield
    finally:
        events.install(previous)


@contextlib.contextmanager
def emitted() -> Iterator[list[tuple[Any, ...]]]:
    """The events of this process, while the block runs: tuples of emit's arguments."""
    found: list[tuple[Any, ...]] = []
    with recorder(lambda *arguments: found.append(arguments)):
        yield found


@dataclass(frozen=True)
class Config:
    """One configuration. `options` go to DataLoader as they are."""

    dataset: str = "squares"
    sampling: str = "by 4"
    workers: int = 0
    generator: bool = False  # a passed generator, for the loader and the sampler
    stop_after: int | None = None  # leave each epoch but the last after this many batches
    epochs: int = 2
    any_order: bool = False  # compare the batches of an epoch as a multiset
    compare: str = "all"  # or "first error": what comes after it differs on purpose
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [self.dataset, self.sampling, f"{self.workers} workers"]
        parts += ["generator"] if self.generator else []
        parts += [f"stop after {self.stop_after}"] if self.stop_after else []
        parts += [f"{name}={getattr(value, '__name__', value)}" for name, value in self.options.items()]
        return "-".join(parts).replace(" ", "_")


def build(config: Config, loaders: ModuleType, parts: ModuleType, generator: torch.Generator | None) -> Any:
    data = DATASETS[config.dataset](parts)
    options = dict(SAMPLINGS[config.sampling](parts, data, generator), **config.options)
    return loaders.DataLoader(data, num_workers=config.workers, generator=generator, **options)


def seed_all() -> None:
    torch.default_generator.manual_seed(11)
    np.random.seed(12)
    random.seed(13)


def observe(config: Config, loaders: ModuleType, parts: ModuleType | None = None) -> dict[str, Any]:
    """Run `config` from the same seeds and return all that shows: batches, errors, warnings, lengths, random states."""
    seed_all()
    generator = torch.Generator() if config.generator else None
    if generator is not None:
        generator.manual_seed(14)
    shown: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            loader = build(config, loaders, parts or loaders, generator)
        except Exception as error:
            shown["construction"] = describe_error(error)
        else:
            show_epochs(config, loader, shown)
            if loader._iterator is not None:
                loader._iterator._shutdown_workers()
    shown["warnings"] = [
        (warning.category, neutral(str(warning.message)))
        for warning in caught
        if "use of fork" not in str(warning.message)  # Python's own, from 3.12 on
    ]
    shown["random"] = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    shown["generator"] = None if generator is None else generator.get_state().tolist()
    return shown


def show_epochs(config: Config, loader: Any, shown: dict[str, Any]) -> None:
    shown["length"] = attempt(lambda: len(loader))
    if config.workers == 0:  # an iterator's is its sampler's, which an iterable dataset does not have
        shown["length of an iterator"] = attempt(lambda: len(iter(loader)))[:2]
    for epoch in range(config.epochs):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        last = epoch == config.epochs - 1
        seen = steps(loader, None if last else config.stop_after)
        if config.compare == "first error":
            seen = seen[: 1 + next(i for i, step in enumerate(seen) if step[0] == "error")]
        shown[f"epoch {epoch}"] = in_any_order(seen) if config.any_order else seen


def in_any_order(seen: list[Any]) -> list[str]:
    """The steps of a pass whose order is free, and with it which worker did what."""
    return sorted(re.sub(r"worker process \d", "worker process ?", repr(step)) for step in seen)


def steps(loader: Any, stop_after: int | None = None) -> list[Any]:
    """One pass, as a list of what each call of next() did. An error does not end it, only StopIteration does; what
    next() does after that is one more step.

    At the end the workers are shut down. An error's traceback refers to itself and to the iterator, so that would
    otherwise be up to the garbage collector; torch then loses the queues before they could carry its Nones, and waits
    5 s for each worker.
    """
    begun = attempt(lambda: iter(loader))
    if begun[0] == "error":
        return [begun]
    iterator, seen = begun[1], []
    while len(seen) < (stop_after or PATIENCE):
        step = attempt(lambda: next(iterator))
        seen.append((step[0], comparable(step[1])) if step[0] == "value" else step)
        if seen[-1][:2] == ("error", StopIteration) and seen[-2:-1] == seen[-1:]:
            break
    if loader.num_workers > 0 and not loader.persistent_workers and seen[-1][0] == "error":
        iterator._shutdown_workers()
    return seen


def attempt(run: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        return "value", run()
    except Exception as error:
        return describe_error(error)


def in_both(run: Callable[[ModuleType], Any]) -> tuple[Any, ...]:
    """What `run(package)` returns or raises: the same with minidl and with torch.utils.data."""
    ours, theirs = attempt(lambda: run(minidl)), attempt(lambda: run(TORCH))
    assert ours == theirs
    return ours


def alike(test: Callable[..., Any]) -> Callable[..., None]:
    """A test that runs with minidl and with torch.utils.data as its `package`, and returns the same with both."""

    @functools.wraps(test)
    def both(**arguments: Any) -> None:
        assert test(minidl, **arguments) == test(TORCH, **arguments)

    _, *others = inspect.signature(test).parameters.values()
    both.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return both


def describe_error(error: Exception) -> tuple[Any, ...]:
    """Type and message, without the traceback of the worker between the message's first line and its last."""
    lines = str(error).split("\n")
    if "Original Traceback" in str(error):
        lines = [lines[0], *lines[last_frame(lines) + 1 :]]
    return "error", type(error), neutral("\n".join(lines).rstrip())


def last_frame(lines: list[str]) -> int:
    """The last line that belongs to the traceback: these are indented."""
    return max(i for i, line in enumerate(lines) if line.startswith("  "))


def neutral(text: str) -> str:
    """Without what differs from run to run, and without the package's name in our own classes' names."""
    text = re.sub(r"(Minidl|Torch)Stream", "Stream", text)
    return re.sub(r"pid(\(s\))? [\d, ]+", "pid ?", text)


def comparable(value: Any) -> Any:
    """`value` in a form in which == means: same types, same structure, same values, same extra attributes."""
    if isinstance(value, torch.Tensor):
        return type(value), str(value.dtype), tuple(value.shape), value.stride(), repr(value.tolist())
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value), str(value.dtype), value.shape, repr(value.tolist())
    if isinstance(value, Mapping):
        return type(value), [(key, comparable(value[key])) for key in value], attributes(value)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return type(value), [comparable(item) for item in value], attributes(value)
    return type(value), repr(value)


def attributes(value: Any) -> dict[str, str]:
    """What a container carries besides its items."""
    return {name: repr(held) for name, held in getattr(value, "__dict__", {}).items() if name != "data"}
