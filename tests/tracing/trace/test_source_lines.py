"""The lines that are said to emit do."""

from __future__ import annotations

from pathlib import Path

import minidl
from tracing.trace.source_lines import emit_sites


def test_each_site_is_a_call_of_emit_with_that_kind() -> None:
    package = Path(minidl.__file__).parent
    for kind, sites in emit_sites().items():
        for site in sites:
            lines = (package.parent / site.file).read_text().splitlines()
            assert "emit(" in lines[site.line - 1], site
            assert any(kind in line for line in lines[site.line - 1 : site.line + 2]), site
            name = site.function.rpartition(".")[2]
            assert f"def {name}(" in lines[site.first - 1], site
            assert site.first <= site.line <= site.last
    assert emit_sites()["SEND_BEGIN"][0].function == "Producer._packed", "in full"
