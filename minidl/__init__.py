"""minidl: see inside PyTorch's DataLoader. The public names are those of `torch.utils.data`: see minidl/public.py.

They are imported when the first of them is used: who only reads traces needs `minidl.events`, and not a second for
torch.
"""

from __future__ import annotations

from importlib import util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minidl.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if util.find_spec(f"minidl.{name}"):
        raise AttributeError(name)  # a module: `from minidl import events` goes on to import it, and torch stays out
    from minidl import public

    value = globals()[name] = getattr(public, name)  # it is not asked for here again
    return value


def __dir__() -> list[str]:
    from minidl import public

    return sorted({*globals(), *public.__all__})
