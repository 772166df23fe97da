"""What was not recorded in a run, and could not be."""

from __future__ import annotations

from tracing.recording import file_format as fmt
from tracing.recording.trace_directory import parts_of, whole
from tracing.trace.trace import Trace


def unseen_loaders(trace: Trace) -> list[str]:
    """The classes of loaders that were made in this run, and whose own iterators no process of it recorded."""
    run = whole(trace.path)
    traces = (trace if path == trace.path else Trace(path) for path in [trace.path, run, *parts_of(run)])
    unseen: list[str] = fmt.description(run).get(fmt.OWN_ITERATORS, [])
    while unseen and (each := next(traces, None)) is not None:
        seen = {loader.config.get("loader") for loader in each.loaders}
        unseen = [name for name in unseen if name not in seen]
    return unseen


def what_it_lacks(trace: Trace) -> list[str]:
    """A sentence each."""
    lacking = "has iterators of its own: workers that they started were not seen."
    return [f"{loader} {lacking}" for loader in unseen_loaders(trace)]
