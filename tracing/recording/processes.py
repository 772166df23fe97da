"""`tracing run` and other processes: its children find it through their environment.

Python finds our sitecustomize through the environment, which -I, -E and -S ignore, and a program may replace: what it
starts that way is not recorded.

Legend
    TRACING_RUN   ["/traces/train", "4711-1764…"]   in the environment of children: a Child's arguments
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from minidl import events
from tracing.recording import file_format as fmt
from tracing.recording import trace_directory
from tracing.recording.record import Child, record

RUN = "TRACING_RUN"
IN_CHILDREN = str(Path(__file__).absolute().parent / "in_children")  # with what Python runs as each of them starts


def record_children(recording: record) -> None:
    """From now on every Python process that is started, by this one or by its children, is recorded."""
    os.environ[RUN] = json.dumps([str(recording.path), fmt.description(recording.path).get("run")])
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
        if trace_directory.header()["rank"] is not None:  # it may hang before its first loader
            child.become_a_part()
