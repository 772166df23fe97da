"""The same events from torch's own DataLoader: `tracing.attach(loader)`, and for a whole program `everything()`.

The installed torch is used, and stays as it is on disk. In memory the base class of all its iterators learns to make,
for an attached loader, an instance of a subclass that emits what it does (tracing.recording.torch_loader). So it does
not matter whose loader it is, what makes the iterator, nor when its class was imported: a subclass of DataLoader that
has its own iterators, like torchdata's, or no DataLoader at all, as in fastai, which makes torch's iterators itself.
Other loaders get the iterator they always got.

The user's program imports torch, not this module: it may have something to set first.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from tracing.recording.in_children.sitecustomize import AfterImport
from tracing.recording.torch_loader import common

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    Loader = TypeVar("Loader", bound=DataLoader[Any])

HOME = "torch.utils.data.dataloader"  # the module that DataLoader is defined in


def attach(loader: Loader) -> Loader:
    """Make a `torch.utils.data.DataLoader`, or one of a subclass, emit what it does, as minidl's loader does: each of
    its iterators from now on, whenever a recording is on (`tracing.record`), in main and in its workers.

    Returns the loader itself. What it yields and raises stays the same. A copy of it is not attached. An iterator that
    exists already, one with persistent workers, emits nothing, nor does one that is unlike those of torch 2.4 to 2.15:
    stderr says so. Raises TypeError for anything but torch's loader.
    """
    from torch.utils.data import DataLoader, dataloader

    if not isinstance(loader, DataLoader):
        raise TypeError(f"attach() takes a torch.utils.data.DataLoader, not {type(loader)}")
    _hook(dataloader)
    common.epochs_of(loader)
    return loader


def _hook(torchs: Any) -> None:
    """Replace `__new__` of the iterators' base class in torch's module, once. It stays, since Python cannot take it
    back; while nothing is attached it makes what was made without it. (A `__new__` is in no traceback, and no warning
    names it.)"""
    base = getattr(torchs, "_BaseDataLoaderIter", None)
    if base is None or "__new__" in vars(base):
        return

    def new_iterator(kind: Any, loader: Any = None, *_: Any, **__: Any) -> Any:
        attached = hasattr(loader, "_dataset_kind") and common.is_attached(loader)
        iterator = _emitting(kind, loader) if attached else None
        return object.__new__(kind) if iterator is None else iterator

    base.__new__ = new_iterator


def _emitting(kind: Any, loader: Any) -> Any:
    """A new iterator of `loader` that emits. None if it cannot: stderr says so."""
    try:
        from tracing.recording.torch_loader.iterators import emitting

        if (cls := emitting(kind, loader)) is not None:
            iterator: Any = object.__new__(cls)
            iterator._begin_to_emit(loader)
            return iterator
    except Exception:  # whatever is special about these two classes, or this torch, the program goes on
        pass
    _say_unseen(type(loader).__name__)
    return None


@functools.cache  # once
def _say_unseen(loaders: str) -> None:
    why = "its iterators are unlike those of torch 2.4 to 2.15"
    with contextlib.suppress(Exception):  # of the program's own stderr
        print(f"tracing: {loaders} is not recorded: {why}", file=sys.stderr, flush=True)


# ---- a whole program


def attach_everything() -> None:
    """From now on every loader of torch is attached as soon as it is iterated, even if torch is not imported yet."""
    common.every = True
    if HOME in sys.modules:
        _hook(sys.modules[HOME])
    else:
        sys.meta_path.insert(0, _finder)


_finder: Any = AfterImport((HOME,), lambda: _hook(sys.modules[HOME]))


@contextlib.contextmanager
def everything() -> Iterator[None]:
    """Within it every loader of torch is attached."""
    attach_everything()
    try:
        yield
    finally:
        common.every = False
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
