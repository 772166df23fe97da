"""minidl: see inside PyTorch's DataLoader. The public names are those of `torch.utils.data`: see minidl/public.py.

They are imported on first use: reading traces needs only `minidl.events`, and should not wait a second for torch.
"""

from __future__ import annotations

from importlib import import_module, util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minidl.public import *  # noqa: F403
    from minidl.stateful import StatefulDataLoader as StatefulDataLoader


def __getattr__(name: str) -> Any:
    if util.find_spec(f"minidl.{name}"):
        raise AttributeError(name)  # a submodule: `from minidl import events` imports it next, without torch
    from minidl import public

    source = import_module("minidl.stateful") if name == "StatefulDataLoader" else public
    value = globals()[name] = getattr(source, name)  # from now on it is found without this function
    return value


def __dir__() -> list[str]:
    from minidl import public

    return sorted({*globals(), *public.__all__, "StatefulDataLoader"})
