"""Imports for the server that answers are forked from: see grading.py."""

import importlib

from minidl.world.simulated.explore import freeze
from notebooks.exercises.exercise import exercises

for name in ("minidl.public", "matplotlib.figure", "tracing.recording.simulated_run", "tracing.views.timeline"):
    importlib.import_module(name)
exercises()
freeze()
