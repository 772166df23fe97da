"""Pages of one self-contained file: what the step-through and the playground have in common, with page_base.css."""

from __future__ import annotations

import importlib.resources
import json
from typing import Any

from tracing.views.batch_colours import DARK_ON_PAPER, ON_PAPER

# For the pages' scripts: batch n has colour n modulo 7, and its number is written in the second.
COLOURS = [[colour, "#ffffff" if colour in DARK_ON_PAPER else "#000000"] for colour in ON_PAPER]


def file_text(package: str, name: str) -> str:
    """A file beside the modules of a package."""
    return importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8")


def as_data(value: Any) -> str:
    """JSON for a <script> element. A text in it may be anything, "</script>" too."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr).replace("<", "\\u003c")


def made(package: str, scripts: tuple[str, ...], pieces: dict[str, str]) -> str:
    """The page.html of a package, with page_base.css and its page.css, these scripts, and what else it asks for."""
    style = file_text("tracing.views", "page_base.css") + file_text(package, "page.css")
    pieces = {"style": style, "script": "\n".join(file_text(package, name) for name in scripts), **pieces}
    before, *parts = file_text(package, "page.html").split("{{")
    return before + "".join(pieces[name] + rest for name, _, rest in (part.partition("}}") for part in parts))
