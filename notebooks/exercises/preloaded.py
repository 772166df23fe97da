"""Imports for the server that answers are forked from (runner.py): nothing is imported twice."""

import gc
import importlib

for name in ("minidl.public", "notebooks.exercises.judge", "notebooks.exercises.explained"):
    importlib.import_module(name)
gc.collect()
gc.freeze()  # no garbage collection looks through all this, in the processes that are forked from here neither
