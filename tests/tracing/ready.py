"""Importing this is what each `python -m tracing run` does before its program, and after it: for tests.minidl.mains."""

import multiprocessing.popen_fork
import multiprocessing.queues  # noqa: F401

import numpy.ma  # noqa: F401

import tracing.__main__
import tracing.cli.run_script
import tracing.ranks.report
import tracing.recording.torch_loader.common  # noqa: F401
