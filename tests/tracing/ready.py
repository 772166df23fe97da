"""Importing this is what each `python -m tracing run` does before its program, and after it: for tests.minidl.mains."""

import importlib

from tracing.recording.source_lines import sources_as_json

for name in ("__main__", "cli.run_script", "cli.commands.run", "analysis.report.savings", "analysis.whatif.whatif"):
    importlib.import_module(f"tracing.{name}")
sources_as_json()  # reads all of minidl, and keeps what it found
