"""docs/events.md: every kind of event in a table, made from the enum, so that the two cannot differ.

python -m tests.docs.events_page > docs/events.md
"""

from __future__ import annotations

import re

from minidl.events import CLOCKED, Kind, Queue
from tracing.recording.source_lines import emit_sites

HEAD = """# Events

What a loader emits while it works. Made from `minidl/events.py` by `make docs`.

An event has a **time** (`time.monotonic_ns()`, one clock for all processes), the **actor** that emitted it (a thread
of a process), a **kind**, and, where they apply, a **task**, a **worker**, a **queue**, a **value** and a **text**.
`loader` and `epoch` distinguish several loaders and epochs in one trace.

An event about a message without a task has a negative `task`: `-2` STOP, `-3` RESUME, `-4` WAKE, `-5` DIED; `-1` means
that the event concerns neither a task nor a message. The queues are {queues}.
For kinds below {clocked}, `value` is the CPU time that the thread has used so far. Compare its difference between a
begin and its end with the wall time, and you know how much was computing and how much was waiting.

An event is emitted before any other thread can see its effect, so sorting by time never shows an effect before its
cause. Each kind is emitted by exactly one line of minidl, in the function named in the last column; `data_queue`, the
only queue without a pipe, has lines of its own. Words in italics are fields of the event; *batch* is its task, or
the message without one.

"""


def markdown() -> str:
    """The page."""
    queues = ", ".join(f"`{queue.name}` ({queue.value})" for queue in Queue if queue)
    sites = emit_sites()
    rows = ["| kind | number | emitted by | when it | value | text | emitted in |", "|---|---|---|---|---|---|---|"]
    for kind in Kind:
        where = "; ".join(f"`{site.file}` {site.function}" for site in sites.get(kind.name, ()))
        when = re.sub(r"{(\w+)}", r"*\1*", kind.when)
        cells = (f"`{kind.name}`", str(kind.value), kind.who, when, kind.value_is, kind.text_is, where)
        rows.append(f"| {' | '.join(cells)} |")
    return HEAD.format(queues=queues, clocked=CLOCKED) + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
