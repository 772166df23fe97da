"""What the processes used while they were recorded: `trace.samples`, as tracing.recording.watch took them.

A process is sampled from its first event on, up to ten times a second for a minute, then every second; and when its
recording stops. The last sample shows how long it lived. Where samples are missing, the watching thread could not
run: other code held Python's lock, or the process was stopped or got no core.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracing.recording import file_format as fmt


def read(directory: Path) -> np.ndarray:
    """The samples so far of all processes, shape (n,), SAMPLE_DTYPE, in time order; empty if the trace has none.
    Half a sample at the end of a file is left out."""
    found = [np.empty(0, fmt.SAMPLE_DTYPE)]
    for path in map(fmt.samples_file, fmt.events_files(directory)):
        if path.is_file():
            data = path.read_bytes()
            found.append(np.frombuffer(data, fmt.SAMPLE_DTYPE, len(data) // fmt.SAMPLE.size))
    samples = np.concatenate(found)
    return samples[np.argsort(samples["time"], kind="stable")]
