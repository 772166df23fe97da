"""How numbers and names are told: the same in every view."""

from __future__ import annotations

from minidl.events import Queue

QUEUE_NAMES = {Queue.INDEX: "index_queue", Queue.RESULT: "worker_result_queue", Queue.DATA: "data_queue"}
REORDER_BUFFER = "reorder buffer"

STAGES = {  # of a batch's way -> the hops, columns of trace.tasks, between which it lies
    "draw keys": ("keys_begin", "keys_drawn"),
    f"in {QUEUE_NAMES[Queue.INDEX]}": ("index_put", "index_got"),
    "fetch": ("fetch_begin", "fetch_end"),
    "collate": ("collate_begin", "collate_end"),
    "pickle": ("result_sending", "result_sent"),
    f"in {QUEUE_NAMES[Queue.RESULT]}": ("result_put", "result_got"),
    "unpickle": ("result_arrived", "result_got"),
    "pin": ("pin_begin", "pin_end"),
    f"in {QUEUE_NAMES[Queue.DATA]}": ("data_put", "data_got"),
    f"in {REORDER_BUFFER}": ("stored", "released"),
    "training step": ("yielded", "asked"),
}


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
