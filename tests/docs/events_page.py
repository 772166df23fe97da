"""docs/events.md: every kind of event in a table, made from the enum, so that it cannot drift from it.

python -m tests.docs.events_page > docs/events.md
"""

from __future__ import annotations

from minidl.events import CLOCKED, Kind, Queue
from tracing.recording.source_lines import emit_sites

HEAD = """# Events

What a loader says while it works. Made from `minidl/events.py` by `make docs`.

An event has a **time** (`time.monotonic_ns()`, one clock for all processes), the **actor** that said it (a thread
of a process), a **kind**, and, where they apply, a **task**, a **worker**, a **queue**, a **value** and a **text**.
`loader` and `epoch` tell several loaders and epochs in one trace apart.

A message on a queue that carries no task has a negative one: `-2` STOP, `-3` RESUME, `-4` WAKE, `-5` DIED; `-1` means
that the event concerns no message. The queues are {queues}.
Kinds below {clocked} carry in `value` the CPU time that their thread has used so far: the difference between a begin
and its end, beside the wall time, tells computing from waiting.

An event is said before what it announces can be seen by anybody else, so sorting by time never shows an effect
before its cause. Each kind is emitted by exactly one line of minidl, in the function that the last column names;
`data_queue`, the one queue without a pipe, has lines of its own.

"""


def markdown() -> str:
    """The page."""
    queues = ", ".join(f"`{queue.name}` ({queue.value})" for queue in Queue if queue)
    sites = emit_sites()
    rows = ["| kind | number | who says it | when | value | text | emitted in |", "|---|---|---|---|---|---|---|"]
    for kind in Kind:
        where = "; ".join(f"`{site.file}` {site.function}" for site in sites.get(kind.name, ()))
        cells = (f"`{kind.name}`", str(kind.value), kind.who, kind.when, kind.value_is, kind.text_is, where)
        rows.append(f"| {' | '.join(cells)} |")
    return HEAD.format(queues=queues, clocked=CLOCKED) + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
