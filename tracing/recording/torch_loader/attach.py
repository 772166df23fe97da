"""The same events from torch's own DataLoader as from minidl's, whenever a recording is on.

The installed torch is used, and stays as it is on disk. In memory the base class of all its iterators learns to make,
while a recorder is installed, an instance of a subclass that emits what it does (tracing.recording.torch_loader). So it
does not matter whose loader it is, what makes the iterator, nor when its class was imported: a subclass of DataLoader
that has its own iterators, like torchdata's, or no DataLoader at all, as in fastai, which makes torch's iterators
itself. An iterator that exists already, one with persistent workers, emits nothing.

The user's program imports torch, not this module: it may have something to set first.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any

from minidl import events
from tracing.recording.in_children.sitecustomize import HOME, AfterImport
from tracing.recording.own_files import say


def attach() -> None:
    """From now on each iterator of torch that is made while a recorder is installed emits what it does, even if torch
    is not imported yet. What it yields and raises stays the same. One that is unlike those of torch 2.4 to 2.15 emits
    nothing: stderr says so."""
    if HOME in sys.modules:
        _hook()
    elif _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _hook() -> None:
    """Replace `__new__` of the iterators' base class in torch's module, once. It stays, since Python cannot take it
    back; while nothing is recorded it makes what was made without it. (A `__new__` is in no traceback, and no warning
    names it.)"""
    base = getattr(sys.modules[HOME], "_BaseDataLoaderIter", None)
    if base is None or "__new__" in vars(base):
        return

    def new_iterator(kind: Any, loader: Any = None, *_: Any, **__: Any) -> Any:
        if events.installed() is not None and hasattr(loader, "_dataset_kind"):
            with contextlib.suppress(Exception):  # whatever is special about it, or this torch, the program goes on
                from tracing.recording.torch_loader.iterators import emitting

                if (cls := emitting(kind, loader.num_workers > 0)) is not None:
                    iterator: Any = object.__new__(cls)
                    iterator._begin_to_emit(loader)
                    events.emit(events.LOADER, iterator._progress.epoch_id, value=loader.num_workers, text=loader)
                    return iterator
            why = "its iterators are unlike those of torch 2.4 to 2.15"
            _say_once(f"tracing: {type(loader).__name__} is not recorded: {why}")
        return object.__new__(kind)

    base.__new__ = new_iterator


_finder: Any = AfterImport((HOME,), _hook)
_say_once = functools.cache(say)
