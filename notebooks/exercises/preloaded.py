"""Imports for the server that answers are forked from: see grading.py."""

import gc
import importlib

from notebooks.exercises.exercise import exercises

for name in ("minidl.public", "matplotlib.figure", "tracing.recording.simulated_run", "tracing.views.timeline"):
    importlib.import_module(name)
exercises()

gc.collect()
gc.freeze()  # or each exploration would look through all of torch first, for a tenth of a second
