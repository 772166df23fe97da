"""Rewrites what the docs take from the code: `make docs`, or

python -m docs.make
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

from docs.make import diagrams, house, rooms
from docs.make.markers import between_markers
from minidl.events import Kind
from notebooks import one_page, show
from tracing.views.playground import page

DOCS = Path(__file__).parents[1]


def with_events(text: str) -> str:
    """docs/events.md, with a row for each kind of event."""
    rows = ["| kind | number | emitted by | when it | value | text |", "|---|---|---|---|---|---|"]
    for kind in Kind:
        when = re.sub(r"{(\w+)}", r"*\1*", kind.when)
        cells = (f"`{kind.name}`", str(kind.value), kind.who, when, kind.value_is, kind.text_is)
        rows.append(f"| {' | '.join(cells)} |")
    return between_markers(text, "\n".join(rows), "kinds")


def with_one_page(text: str) -> str:
    """docs/architecture.md, with the loader of notebooks/one_page.py at its beginning, without its events."""
    return between_markers(text, f"```python\n{show.without_events(inspect.getsource(one_page))}\n```", "one page")


# A file of docs/ -> what becomes of its text.
MADE: dict[str, Callable[[str], str]] = {
    "architecture.md": with_one_page,
    "events.md": with_events,
    "pictures/architecture.svg": lambda text: house.draw(),
    "pictures/tracing.svg": lambda text: rooms.draw(),
    "playground.html": lambda text: page.render(),
    "protocol.md": diagrams.with_diagrams,
}


def main() -> None:
    for name, made in MADE.items():
        path = DOCS / name
        path.write_text(made(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
