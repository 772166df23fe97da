"""`tracing run` and other processes: its children find it through their environment, and ranks that are each run by it
find each other's trace.

Python finds our sitecustomize through the environment, which -I, -E and -S ignore, and a program may replace: what it
starts in such a way is not recorded.

Legend
    TRACING_RUN   ["/traces/train", "4711-1764…"]   in the environment of children: a Child's arguments
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from minidl import events
from tracing.recording import file_format as fmt
from tracing.recording import trace_directory
from tracing.recording.record import Child, record

RUN = "TRACING_RUN"
IN_CHILDREN = str(Path(__file__).absolute().parent / "in_children")  # with what Python runs as each of them starts


class RankRecording(record):
    """The recording of this process as one of the ranks of a launch, which share a trace."""

    is_last = False  # whether none of the others went on when it was stopped

    def _claim(self) -> None:
        key = trace_directory.launch()
        with trace_directory.claimed(self.path, key) as self.directory:
            nobody = dict.fromkeys(("pid", *trace_directory.RANKS))
            about = fmt.description(self.directory) or trace_directory.describe(
                self.directory, launch=key, memory=self.memory, **nobody
            )
            self.path = trace_directory.new_part(self.directory, about["run"])

    def _note_the_stop(self) -> None:
        with contextlib.suppress(OSError), trace_directory.locked(self.directory):
            super()._note_the_stop()
            self.is_last = not trace_directory.being_recorded(self.directory)


def record_children(recording: record) -> None:
    """From now on every Python process that is started, by this one or by its children, is recorded."""
    directory = trace_directory.whole(recording.path)
    os.environ[RUN] = json.dumps([str(directory), fmt.description(directory).get("run")])
    path = os.environ.get("PYTHONPATH")
    others = [each for each in path.split(os.pathsep) if each != IN_CHILDREN] if path else []
    os.environ["PYTHONPATH"] = os.pathsep.join([IN_CHILDREN, *others])


def record_this_child() -> None:
    """Record every loader of this process, which its environment says is a child of a run."""
    from tracing.recording.torch_loader.attach import attach_everything

    if RUN in os.environ and events.installed() is None:
        directory, run = json.loads(os.environ[RUN])
        child = Child(Path(directory), run)
        events.install(child.record)
        attach_everything()
        if trace_directory.launch() is not None:  # a rank, which may hang before its first loader
            child.become_a_part()
