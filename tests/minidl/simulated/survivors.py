"""Why nobody could see some of the generated mutants that live, or nobody in the simulated world."""

from __future__ import annotations

import re

# A pattern of "module.function: what is changed", and the reason. The first that matches counts.
REASONS = (
    (r"__init__: `self\.\w+(: [^=]+)? = [^`]*` after `self\.\w+(: [^=]+)? = ", "nobody has the object between the two"),
    (r"^accelerator\.|set_device_index|'mps'", "only with an accelerator"),
    (r"^events\.Kind\.__new__", "it has run before: when the enum was made"),
    (r"^events\.emit: .*(print|traceback)", "only after the recorder has failed: real tests see what is printed"),
    (r"_profiler_enabled", "only torch's profiler shows it: real tests do"),
    (r"_try_put_index: .*(assert|_tasks_outstanding < max_tasks)", "the assertion states what its callers see to"),
    (
        r"use_force: .*(exitcode|worker_id in late)",
        "shared memory has no names here: real tests look",
    ),
    (r"start_workers: `index_reader, index_writer = ", "nobody knows of either pipe yet"),
    (r"worker\.run: `job\.world\.(report_crashes|name_thread)", "for the system's tools: real tests look"),
    (r"shutdown\.joined: .*` after `", "nothing can come between the two lines that would see it"),
    (r"start: no `except \(TypeError", "a process always starts here: real tests look"),
)


def reason(mutant: str) -> str | None:
    """`mutant` is "module.function: what is changed"."""
    return next((why for pattern, why in REASONS if re.search(pattern, mutant)), None)
