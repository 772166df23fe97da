"""docs/events.md agrees with the code; each event comes from one line."""

from __future__ import annotations

from pathlib import Path

from minidl.events import Kind
from tests.docs.events_page import markdown
from tracing.recording.source_lines import emit_sites

ROOT = Path(__file__).parents[2]


def test_the_page_on_events_agrees_with_the_code():
    assert (ROOT / "docs" / "events.md").read_text() == markdown(), "run `make docs`"


def test_every_kind_is_emitted_by_one_line():
    """Queues with and without a pipe are two classes: what both do, each emits in a line of its own."""
    for kind in Kind:
        sites = emit_sites().get(kind.name, [])
        of_data_queue = [site for site in sites if site.function.startswith("ThreadQueue.")]
        assert len(of_data_queue) == (kind in {Kind.PUT, Kind.WAIT, Kind.GOT, Kind.TIMED_OUT})
        assert len(sites) - len(of_data_queue) == 1, (kind.name, sites)


def test_every_kind_is_described():
    for kind in Kind:
        assert kind.who and kind.when and not kind.when.endswith(".")
    assert len({kind.value for kind in Kind}) == len(Kind)
