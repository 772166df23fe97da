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
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from minidl import events
from tracing.recording import trace_directory
from tracing.recording.in_children.sitecustomize import AfterImport
from tracing.recording.torch_loader import attached_loaders

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    Loader = TypeVar("Loader", bound=DataLoader[Any])

HOME = "torch.utils.data.dataloader"  # the module that DataLoader is defined in
# What the iterators that emit are built on. It is private: a torch that lacks any of it is not recorded.
BUILT_ON = {
    "_BaseDataLoaderIter": "_next_index _next_data",
    "_SingleProcessDataLoaderIter": "_next_data",
    "_MultiProcessingDataLoaderIter": "_reset _try_put_index _get_data _mark_worker_as_unavailable _shutdown_workers",
}


def attach(loader: Loader) -> Loader:
    """Make a `torch.utils.data.DataLoader`, or one of a subclass, emit what it does, as minidl's loader does: each of
    its iterators from now on, whenever a recording is on (`tracing.record`), in main and in its workers.

    Returns the loader itself. What it yields and raises stays the same. A copy of it is not attached. An iterator that
    exists already, one with persistent workers, emits nothing. Raises TypeError for anything but torch's loader, and
    RuntimeError if the installed torch's iterators are unlike those of 2.4 to 2.15.
    """
    from torch.utils.data import DataLoader, dataloader

    if not isinstance(loader, DataLoader):
        raise TypeError(f"attach() takes a torch.utils.data.DataLoader, not {type(loader)}")
    if lacking := what_is_lacking(dataloader):
        raise RuntimeError(lacking)
    _hook(dataloader)
    attached_loaders.add(loader)
    return loader


def what_is_lacking(torchs: Any) -> str:
    """Why the loaders of torch's module cannot be recorded; "" if they can."""
    for cls, names in BUILT_ON.items():
        for name in names.split():
            if not hasattr(getattr(torchs, cls, None), name):
                have = f"torch {torchs.torch.__version__} has no {cls}.{name}"
                return f"{have}: its loaders cannot be recorded, those of 2.4 to 2.15 can"
    return ""


def _hook(torchs: Any) -> None:
    """Replace `__new__` of two classes of torch's module, once. It stays, since Python cannot take it back; while
    nothing is attached it makes what was made without it. (A `__new__` is in no traceback, and no warning names it.)"""
    base, cls = torchs._BaseDataLoaderIter, torchs.DataLoader
    if "__new__" in vars(base):
        return

    def new_iterator(kind: Any, loader: Any = None, *_: Any, **__: Any) -> Any:
        attached = hasattr(loader, "_dataset_kind") and attached_loaders.is_attached(loader)
        iterator = _emitting(kind, loader) if attached else None
        return object.__new__(kind) if iterator is None else iterator

    def new_loader(kind: Any, *args: Any, **options: Any) -> Any:
        own = any(getattr(kind, name) is not getattr(cls, name) for name in ("__iter__", "_get_iterator"))
        if own and attached_loaders.every:
            _note(kind)
        new = super(cls, kind).__new__
        return new(kind) if new is object.__new__ else new(kind, *args, **options)

    base.__new__, cls.__new__ = new_iterator, new_loader


def _emitting(kind: Any, loader: Any) -> Any:
    """A new iterator of `loader` that emits. None if it cannot, which is noted in the trace."""
    from tracing.recording.torch_loader.iterators import emitting

    try:
        if (cls := emitting(kind, loader)) is not None:
            iterator: Any = object.__new__(cls)
            iterator._begin_to_emit(loader)
            return iterator
    except Exception:  # whatever is special about these two classes, the program goes on
        pass
    _note(type(loader))
    return None


def _note(loaders: type) -> None:
    """Note in the trace that this class of loaders makes its iterators itself."""
    recorder = getattr(events.installed(), "__self__", None)
    if isinstance(directory := getattr(recorder, "directory", None), Path):  # a child's is the run's, until it records
        trace_directory.note_own_iterators(directory, loaders.__name__)


# ---- a whole program


def attach_everything() -> None:
    """From now on every loader of torch is attached as soon as it is iterated, even if torch is not imported yet."""
    attached_loaders.every = True
    if HOME in sys.modules:
        _hook_torch()
    else:
        sys.meta_path.insert(0, _finder)


def _hook_torch() -> None:
    """If that is possible. Otherwise one line says so at the start, and the program runs unrecorded."""
    if lacking := what_is_lacking(sys.modules[HOME]):
        print(f"tracing: {lacking}", file=sys.stderr, flush=True)
    else:
        _hook(sys.modules[HOME])


_finder: Any = AfterImport((HOME,), _hook_torch)


@contextlib.contextmanager
def everything() -> Iterator[None]:
    """Within it every loader of torch is attached."""
    attach_everything()
    try:
        yield
    finally:
        attached_loaders.every = False
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
