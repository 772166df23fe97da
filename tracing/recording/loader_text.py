"""A loader in words: what a trace keeps of its options, and of where its keys come from. And at which line of the
program it is iterated, or an error was raised."""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing
import re
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

from minidl.events import describe

PRODUCT = Path(__file__).parents[2]
# Places without a line of the program: libraries, and files that do not exist. The recorder also of another copy, whose
# trace is read here.
LIBRARY = re.compile(rf"^<|-packages/|/lib/python3\.|/tracing/recording/|^{re.escape(str(PRODUCT))}/(tracing|minidl)/")

# Names in torch's and minidl's DistributedSampler for what decides which keys a process draws, in which order.
DECIDES = {
    "sampler_replicas": "num_replicas",
    "sampler_rank": "rank",
    "sampler_epoch": "epoch",
    "sampler_seed": "seed",
}


def configuration(loader: Any) -> dict[str, Any]:
    """The text of LOADER, for torch's loader, minidl's, or another library's that is made for torch's iterators:
    then it has what they ask it for. A mapping is a configuration already."""
    if isinstance(loader, dict):
        return loader
    context = getattr(loader, "multiprocessing_context", None) or multiprocessing
    minidls = any(cls.__module__.partition(".")[0] == "minidl" for cls in type(loader).__mro__)
    return {
        "package": "minidl" if minidls else "torch.utils.data",
        "loader": type(loader).__name__,
        "dataset": type(loader.dataset).__name__,
        "iterated_at": line_of_program(),
        "iterable": bool(getattr(loader, "_dataset_kind", 0)),  # its dataset: workers must share it out themselves
        # Whether the dataset makes each sample of a batch by itself.
        "one_by_one": not (getattr(loader, "_dataset_kind", 0) or hasattr(type(loader.dataset), "__getitems__")),
        "cuda": sys.modules["torch"].cuda.is_initialized(),  # then a training step may go on while main loads
        "sampler": type(getattr(loader._index_sampler, "sampler", loader._index_sampler)).__name__,
        **drawing_of(loader),
        "batch_size": getattr(loader, "batch_size", None),
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "in_order": getattr(loader, "in_order", True),  # since torch 2.6
        "pin_memory": loader.pin_memory,
        "persistent_workers": loader.persistent_workers,
        "drop_last": loader.drop_last,
        "timeout": loader.timeout,
        "collate_fn": name_of(loader.collate_fn),
        **({"transport": loader.transport if loader.num_workers else None} if minidls else {}),
        # Asking must not settle it: a program may still call set_start_method.
        "start_method": context.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0],
    }


def line_of_program() -> str:
    """The innermost line of the program that runs now, "train.py:12": of the loop that iterates a loader. "" for none,
    as at a prompt."""
    frame = sys._getframe()
    while frame is not None and LIBRARY.search(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def where_raised(error: BaseException) -> str:
    """The error's type, the last line of the program in its traceback, and what it says: "KeyError at train.py:31,
    main: 'image'"."""
    own = [each for each in traceback.extract_tb(error.__traceback__) if not LIBRARY.search(each.filename)]
    places = [f"{Path(each.filename).name}:{each.lineno}, {each.name}" for each in own[-1:]]
    said = textwrap.shorten(describe(error, as_repr=False).partition(": ")[2], 200, placeholder=" ...")
    return ": ".join(filter(None, [" at ".join([type(error).__name__, *places]), said]))


def name_of(function: object) -> str:
    """A function of the program as texts show it: "pad (train.py:12)"; one of a library, or an object, by its name."""
    name, code = getattr(function, "__qualname__", type(function).__name__), getattr(function, "__code__", None)
    if code is None or str(getattr(function, "__module__", "")).partition(".")[0] in ("torch", "minidl"):
        return name
    return f"{name} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def drawing_of(loader: Any) -> dict[str, int | None]:
    """What a loader draws its keys from: `dataset_size`, and of a sampler that gives each rank its share,
    `sampler_replicas`, `sampler_rank`, `sampler_epoch` and `sampler_seed`; else None. And of a stream, if the program
    defines it, `asks_worker`: whether its module asks in which worker it is."""
    found: dict[str, int | None] = dict.fromkeys(("dataset_size", *DECIDES))
    with contextlib.suppress(Exception):  # these are the user's objects
        sampler = loader._index_sampler
        while sampler is not None and not (hasattr(sampler, "num_replicas") and hasattr(sampler, "rank")):
            sampler = getattr(sampler, "sampler", getattr(sampler, "batch_sampler", None))
        for entry, name in DECIDES.items():
            value = getattr(sampler, name, None)
            found[entry] = value if isinstance(value, int) else None
        dataset = type(loader.dataset)
        if not loader._dataset_kind:  # torch asks an iterable dataset only if the program does
            found["dataset_size"] = len(loader.dataset)
        elif not loader.worker_init_fn and not LIBRARY.search(inspect.getfile(dataset)):
            found["asks_worker"] = "get_worker_info" in inspect.getsource(inspect.getmodule(dataset) or dataset)
    return found
