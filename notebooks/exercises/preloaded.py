"""Imports for the server that answers are forked from (runner.py): nothing is imported twice. What draws a failing
run is among them: each answer that fails would import it again."""

import gc
import importlib

DRAWING = ("tracing.ranks.timeline", "tracing.recording.simulated_run", "matplotlib.backends.backend_agg")
for name in ("minidl.public", "notebooks.exercises.judge", "notebooks.exercises.explained", *DRAWING):
    importlib.import_module(name)
gc.collect()
gc.freeze()  # no garbage collection looks through all this, in the processes that are forked from here neither
