"""What stands in front of an object of torch's, and emits what is done to it."""

from __future__ import annotations

from typing import Any


class Wrapper:
    """An object in front of another one: every attribute that it does not define is the other one's."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)
