"""`tracing run` and other processes: its children find it through their environment, and ranks that are each run by it
find each other's trace.

Legend
    TRACING_RUN   ["/traces/train", "4711-1764…", 1000000]   in the environment of children: a Child's arguments
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from minidl import events
from tracing.recording import file_format as fmt
from tracing.recording import process_header, trace_directory
from tracing.recording.record import Child, record
from tracing.recording.unseen_children import RUN, python_path, watch_for


class RankRecording(record):
    """The recording of this process as one of the ranks of a launch, which share a trace."""

    is_last = False  # whether it was stopped as the last of them

    def _claim(self) -> None:
        key = process_header.launch()
        with trace_directory.claimed(self.path, key) as self.directory:
            about = fmt.description(self.directory)
            if not about:
                nobody = dict.fromkeys(("pid", *process_header.RANKS))
                trace_directory.describe(self.directory, launch=key, memory=self.memory, **nobody)
                about = fmt.description(self.directory)
            self.path = trace_directory.new_part(self.directory, about["run"])

    def _note_the_stop(self) -> None:
        with contextlib.suppress(OSError), trace_directory.locked(self.directory):
            super()._note_the_stop()
            self.is_last = trace_directory.is_last(self.directory)


@contextlib.contextmanager
def children_record_into(recording: record) -> Iterator[None]:
    """Within it every Python process that is started, by this one or by its children, is recorded."""
    directory = trace_directory.whole(recording.path)
    child = [str(directory), fmt.description(directory).get("run"), recording.capacity]
    path = os.environ.get("PYTHONPATH")
    before = {RUN: os.environ.get(RUN), "PYTHONPATH": path}
    os.environ[RUN] = json.dumps(child)
    os.environ["PYTHONPATH"] = python_path(path)
    end_watch = watch_for(directory)
    try:
        yield
    finally:
        end_watch()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def record_this_child() -> None:
    """Record every loader of this process, which its environment says is a child of a run."""
    from tracing.recording.torch_loader.attach import attach_everything

    if RUN in os.environ and events.installed() is None:
        directory, run, capacity = json.loads(os.environ[RUN])
        child = Child(Path(directory), run, capacity)
        events.install(child.record)
        attach_everything()
        watch_for(child.directory)
        if process_header.launch() is not None:  # a rank, which may hang before its first loader
            child.become_a_part()
