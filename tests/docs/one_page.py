"""The loader at the beginning of docs/architecture.md: notebooks/one_page.py, without its events. `make docs`, or

python -m tests.docs.one_page docs/architecture.md
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from notebooks import one_page, show
from tests.benchmarks.table import between_markers


def rewritten(text: str) -> str:
    """The page with the loader as it is now."""
    return between_markers(text, f"```python\n{show.without_events(inspect.getsource(one_page))}\n```", "one page")


if __name__ == "__main__":
    page = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/architecture.md")
    page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
