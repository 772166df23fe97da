"""Numbers and names in words: the same in every view."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from pathlib import Path

from minidl.events import Queue

QUEUE_NAMES = {Queue.INDEX: "index_queue", Queue.RESULT: "worker_result_queue", Queue.DATA: "data_queue"}
REORDER_BUFFER = "reorder buffer"
WIDTH = 76  # characters of a line of a report: the demo indents it by 4

_STAGES = {  # stage on a batch's way -> the hops, columns of trace.tasks, that begin and end it; its gloss
    "draw keys": ("keys_begin", "keys_drawn", "main asks the sampler"),
    f"in {QUEUE_NAMES[Queue.INDEX]}": ("index_put", "index_got", "its task waits for a worker"),
    "fetch": ("fetch_begin", "fetch_end", "dataset[key], for each key"),
    "collate": ("collate_begin", "collate_end", "samples become a batch"),
    "pickle": ("result_sending", "result_sent", "by the worker's feeder thread"),
    f"in {QUEUE_NAMES[Queue.RESULT]}": ("result_put", "result_got", "pickled, sent, waits to be read"),
    "unpickle": ("result_arrived", "result_got", "read by main or the pin thread"),
    "pin": ("pin_begin", "pin_end", "copied to page-locked memory"),
    f"in {QUEUE_NAMES[Queue.DATA]}": ("data_put", "data_got", "pinned, waits for main"),
    f"in {REORDER_BUFFER}": ("stored", "released", "came early, waits for its turn"),
    "training step": ("yielded", "asked", "your code has it"),
}
STAGES = {name: (begin, end) for name, (begin, end, _) in _STAGES.items()}

GLOSSES = {  # for the rows of the report's tables
    # where main's time went
    "start-up": "from an epoch's beginning to its first batch",
    "training": "your code, between two batches",
    "waiting": "for a message from a worker or the pin thread",
    "drawing": "asks the sampler for keys",
    "taking": "unpickles batches (maps their memory, with torch)",
    "loading": "makes batches itself: there are no workers",
    "handling": "the loader's own bookkeeping",
    "shutdown": "ends the workers",
    "elsewhere": "in other loaders; before the first next()",
    **{name: gloss for name, (_, _, gloss) in _STAGES.items()},
}


def wrap(label: str, text: str) -> list[str]:
    """Lines of text after a label, such as "Note: ", and indented by its width."""
    blank = " " * len(label)
    return textwrap.wrap(text, WIDTH, initial_indent=label, subsequent_indent=blank, break_on_hyphens=False)


def command() -> str:
    """How to call the tracer, as this process was called: for lines to be pasted."""
    typed = "".join(sys.orig_argv[1:2])
    if Path(typed).name != "minidl":
        return "python -m tracing"
    return "minidl" if shutil.which("minidl") else typed


def duration(ns: float) -> str:
    """A duration in at most eight columns: "0 ns", "412 µs", "12.3 ms", "4.56 s", "1.5 h"."""
    if ns < 999.5:
        return f"{max(0, ns):.0f} ns"
    if ns < 999.5e3:
        return f"{ns / 1e3:.0f} µs"
    for unit, size, limit in (("ms", 1e6, 999.5e6), ("s", 1e9, 999.5e9), ("min", 60e9, 6000e9)):
        if ns < limit:
            number = ns / size
            return f"{number:.{2 if number < 9.995 and unit == 's' else 1 if number < 99.95 else 0}f} {unit}"
    return f"{ns / 3600e9:.1f} h"


def size(nbytes: float) -> str:
    """Bytes in at most eight columns: "412 B", "12.3 KB", "4.5 MB", "120 GB"; a KB is 1,000 bytes."""
    if nbytes < 999.5:
        return f"{nbytes:.0f} B"
    for unit, of in (("KB", 1e3), ("MB", 1e6)):
        if nbytes < 999.5 * of:
            return f"{nbytes / of:.{1 if nbytes < 99.95 * of else 0}f} {unit}"
    return f"{nbytes / 1e9:.1f} GB"


def seconds(begin: int, end: int) -> str:
    """Two times (ns) as "1.204-1.231", in seconds: a part of the trace that contains both, as `timeline --from --to`
    takes it."""
    return f"{math.floor(begin / 1e6) / 1e3:.3f}-{math.ceil(end / 1e6) / 1e3:.3f}"
