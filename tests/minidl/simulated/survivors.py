"""Why nobody could ever see some of the generated mutants that live."""

from __future__ import annotations

REASONS: dict[str, str] = {}
