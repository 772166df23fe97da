"""What fails on purpose in several tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Unspeakable(Exception):
    """An error that itself fails, as one does whose text is made of something that is gone."""

    def __init__(self, *_: Any) -> None:
        pass

    def __str__(self) -> str:
        raise LookupError("no words")

    __repr__ = __str__


def raising(error: BaseException) -> Callable[..., Any]:
    """A collate_fn, or any other function."""

    def refuse(*_: Any) -> Any:
        raise error

    return refuse
