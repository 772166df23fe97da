"""The same events from torch's own DataLoader: `tracing.attach(loader)`, and for a whole program `everything()`.

The installed torch is used, and stays as it is on disk. In memory one method is replaced, the one with which a
DataLoader makes its iterator: for an attached loader it makes one that loads with torch's own code and emits what it
does (tracing.recording.torch_loader). Other loaders get the iterator they always got.

The user's program imports torch, not this module: it may have something to set first.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, TypeVar

from tracing.recording.torch_loader import attached_loaders

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    Loader = TypeVar("Loader", bound=DataLoader[Any])

HOME = "torch.utils.data.dataloader"  # the module that DataLoader is defined in


def attach(loader: Loader) -> Loader:
    """Make a `torch.utils.data.DataLoader`, or one of a subclass, emit what it does, as minidl's loader does: each of
    its iterators from now on, whenever a recording is on (`tracing.record`), in main and in its workers.

    Returns the loader itself. What it yields and raises stays the same. A copy of it is not attached. An iterator that
    exists already, one with persistent workers, emits nothing. Raises TypeError for anything but torch's loader.
    """
    from torch.utils.data import DataLoader

    if not isinstance(loader, DataLoader):
        raise TypeError(f"attach() takes a torch.utils.data.DataLoader, not {_name(type(loader))}")
    _hook(DataLoader)
    attached_loaders.add(loader)
    return loader


def _name(cls: type) -> str:
    of_minidl = cls.__module__.partition(".")[0] == "minidl"
    return f"{cls.__module__}.{cls.__qualname__}" + (", which is recorded without it" if of_minidl else "")


def _hook(cls: Any) -> None:
    """Replace `_get_iterator`, once."""
    original = cls._get_iterator
    if hasattr(original, "__wrapped__"):
        return

    @functools.cache
    def emitting() -> Callable[[Any], Any]:
        from tracing.recording.torch_loader.iterators import with_emitting_iterators

        return with_emitting_iterators(original)

    @functools.wraps(original)
    def _get_iterator(loader: Any) -> Any:
        attached = is_everything() or attached_loaders.is_attached(loader)
        return (emitting() if attached else original)(loader)

    cls._get_iterator = _get_iterator


# ---- a whole program


def is_everything() -> bool:
    """Whether every loader is attached."""
    return attached_loaders.in_workers is everything


@contextlib.contextmanager
def everything() -> Iterator[None]:
    """Within it every loader of torch is attached as soon as it is iterated, even if torch is not imported yet."""
    finder = _Finder()
    if HOME in sys.modules:
        _hook(sys.modules[HOME].DataLoader)
    else:
        sys.meta_path.insert(0, finder)
    attached_loaders.in_workers = everything
    try:
        yield
    finally:
        attached_loaders.in_workers = contextlib.nullcontext
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        if HOME in sys.modules and not attached_loaders.known:
            cls = sys.modules[HOME].DataLoader
            cls._get_iterator = inspect.unwrap(cls._get_iterator)


class _Finder:
    """Waits for the import of torch's module: finds it where it would be found anyway, and hooks it once it has run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != HOME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _and_then_hook(loader.exec_module)
        return spec


def _and_then_hook(exec_module: Callable[[Any], None]) -> Callable[[Any], None]:
    def run(module: Any) -> None:
        exec_module(module)
        if is_everything():
            _hook(module.DataLoader)

    return run
