"""What the processes used while they were recorded: `trace.samples`, as tracing.recording.watch took them.

A process is sampled from its first event on, up to ten times a second for a minute, then every second; and when its
recording stops. The last sample shows until when it lived. Where samples are missing or `late`, the watching thread
could not run: other code held Python's lock, or the process was stopped or got no core.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracing.recording import file_format as fmt

SAMPLE_DTYPE = np.dtype(
    [
        (name, "<i8")
        for name in (
            "time", "pid",  # ns, the clock of the events
            "cpu",  # ns that all threads of the process have used so far
            "main_cpu",  # ns of these that its main thread has used; -1: unknown
            "children",  # ns that its own children have used, of those that it has waited for
            "processes",  # children that it has started by multiprocessing, and that it has not joined
            "late",  # ns after it was due: what the watching thread waited for Python's lock, or for a core
            # Of all cores of the machine together, ns since it started; -1: unknown, and for all but the main process
            "busy", "steal",  # by programs on this machine; taken by other machines on the same host
            "idle",
        )
    ]
)  # fmt: skip


def read(directory: Path) -> np.ndarray:
    """The samples so far of all processes, shape (n,), SAMPLE_DTYPE, in time order; none of a trace that has none. Half
    a sample at the end of a file is left out."""
    found = [np.empty(0, SAMPLE_DTYPE)]
    for path in map(fmt.samples_file, fmt.events_files(directory)):
        if path.is_file():
            data = path.read_bytes()
            found.append(np.frombuffer(data, SAMPLE_DTYPE, len(data) // SAMPLE_DTYPE.itemsize))
    samples = np.concatenate(found)
    return samples[np.argsort(samples["time"], kind="stable")]
