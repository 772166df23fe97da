"""`tracing.record()`: recording is ambient, so no call site changes.

with tracing.record("run.trace"):
    for batch in DataLoader(dataset, num_workers=2):  # minidl's or torch's
        ...

Other processes, each of which has its loaders recorded into a part of the same trace, a folder of
its own (tracing.trace.parts reads them):
1. A loader's worker is given its main's recorder, and records beside main.
2. Any other child waits, with a Child for a recorder, until it iterates a loader: then it becomes a part (a rank of
   torchrun does at once). What an iterator inherited at a fork does is not recorded: that iterator is its
   parent's.
3. A process becomes a Child when it is forked. Under `tracing run` others do, too: they find it through their
   environment, in which Python finds our sitecustomize. (-I, -E and -S ignore that, and a program may replace it: what
   it starts that way is not recorded.)

Legend
    TRACING_RUN   ["/traces/train", "4711-1764…"]   in the environment of children: a Child's arguments
"""

from __future__ import annotations

import json
import os
import warnings
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from minidl import events
from tracing.recording import file_format as fmt
from tracing.recording import trace_directory
from tracing.recording.event_writer import EventWriter
from tracing.recording.loader_text import where_raised
from tracing.recording.own_files import say
from tracing.recording.torch_loader.attach import attach

RUN = "TRACING_RUN"
IN_CHILDREN = str(Path(__file__).absolute().parent / "in_children")  # with what Python runs as each of them starts


class record:  # in lower case because it reads as a function: `with record(path):`
    """Record what every loader in this process and its children does, minidl's and torch's, into the directory `path`.

    An earlier trace there is replaced, other files in it are left alone; a directory that holds anything but a trace
    is refused with FileExistsError. While another recording uses the directory, `run.trace-2` is used instead (then
    `path` and a warning say so). Each process can record 20 million events, of 40 bytes; later ones are dropped and
    counted.

    `start()` and `stop()` are what `with` calls. Both can be called twice; a `start()` after a `stop()` begins anew."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._writer: EventWriter | None = None
        self.ended_by = ""  # the error that ends it: after KeyboardInterrupt, it may have hung
        self.failure: OSError | None = None  # once it is stopped: why this process could not record everything

    def start(self, **about: Any) -> record:
        """Begin to record. Returns itself. Raises FileExistsError as above, OSError if `path` cannot be made.

        (`about`: more entries of its trace.json, where it is a part of a run.)"""
        if self._writer is None:
            used = trace_directory.claim(self.path, **about)
            if used != self.path and not about:
                warnings.warn(f"{self.path} is being recorded into: recording into {used}", stacklevel=2)
            self.path, self._pid = used, os.getpid()
            self._writer = EventWriter(self.path)
            self._writer.open()  # now: a program may hang before its first event
            self._previous = events.install(self._writer.record)
            attach()
        return self

    def stop(self) -> None:
        """End recording here and in everything started from now on; workers that live on go on recording."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if self._pid != os.getpid():  # a child forked within the recording: its parent goes on
            events.install(None)
            return
        trace_directory.note_the_stop(self.path, self.ended_by)
        if events.installed() == writer.record:  # else another recorder has been installed since: leave it
            events.install(self._previous)
        writer.close()
        self.failure = writer.failure
        trace_directory.cut_files_of_the_dead(self.path)

    def __enter__(self) -> record:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        self.ended_by = where_raised(error) if error is not None else ""
        self.stop()


# ---- other processes


class Child:
    """The recorder of a process that has iterated no loader yet."""

    def __init__(self, directory: Path, run: Any) -> None:
        self.directory, self.run = directory, run

    def record(self, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object) -> None:
        if kind != events.LOADER:
            return
        if events.installed() == self.record:  # else another thread was first
            self.become_a_part()
        events.emit(kind, epoch_id, task, worker, queue, value, text)

    def become_a_part(self) -> None:
        events.install(None)  # also what is put back when the part's recording stops
        try:
            with trace_directory.locked(self.directory):
                if fmt.description(self.directory).get("run") != self.run:
                    raise FileNotFoundError(f"{self.directory} holds the trace of another run now")
                rank = trace_directory.rank_of_this_process()["rank"]
                ranked = "" if rank is None else f"rank{rank}-"
                recording = record(self.directory / fmt.PARTS / f"{ranked}{os.getpid()}")
                recording.start(part_of=self.run)
        except OSError as error:
            say(f"tracing: process {os.getpid()} is not recorded: {error}")
        else:
            # At exit, also of multiprocessing's processes, and after what that does then: it joins its children, say.
            Finalize(None, recording.stop, exitpriority=-100)


def _after_fork_in_child() -> None:
    recorder = getattr(events.installed(), "__self__", None)
    if isinstance(recorder, EventWriter):
        recorder.forget_process()  # a loader's worker is given it again
        about = fmt.description(recorder.directory)
        directory = recorder.directory.parent.parent if "part_of" in about else recorder.directory
        events.install(Child(directory, about.get("part_of", about.get("run"))).record)


os.register_at_fork(after_in_child=_after_fork_in_child)


# ---- what a run starts


def record_children(recording: record) -> None:
    """From now on every Python process that is started, by this one or by its children, is recorded."""
    os.environ[RUN] = json.dumps([str(recording.path), fmt.description(recording.path).get("run")])
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{IN_CHILDREN}{os.pathsep}{path}" if path else IN_CHILDREN


def record_this_child() -> None:
    """Record every loader of this process, which its environment says is a child of a run."""
    if RUN in os.environ and events.installed() is None:
        directory, run = json.loads(os.environ[RUN])
        child = Child(Path(directory), run)
        events.install(child.record)
        attach()
        if trace_directory.rank_of_this_process()["rank"] is not None:  # it may hang before its first loader
            child.become_a_part()
