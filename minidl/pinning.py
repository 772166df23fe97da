"""Page-locked memory: `pin_memory()`, and the thread that does it while main trains.

A GPU copies from page-locked ("pinned") memory without the processor, so a batch that is pinned beforehand can be
sent to it while it works on the one before. The copy into pinned memory takes time: a thread of main does
it, between worker_result_queue and data_queue.

torch: _utils/pin_memory.py
"""

from __future__ import annotations

import collections.abc
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch._utils import ExceptionWrapper

from minidl import events
from minidl import world as worlds
from minidl.data.collate import mapping_like, sequence_like
from minidl.events import NO_WORKER, describe, emit
from minidl.messages import Failed, Result, StreamEnd
from minidl.queues import Consumer, Stopped, ThreadQueue
from minidl.world import World

HOST = "host"  # pin_memory="host": lock pages with the operating system's own call; needs no accelerator


def pin_loop(
    world: World, results: Consumer, data_queue: ThreadQueue, device: str, device_index: int | None, epoch_id: int
) -> None:
    """The pin thread: every message of `results` goes to `data_queue`, batches pinned on the way, until the flag
    that `results` watches is set. An exception travels on in the batch's place. torch: _pin_memory_loop"""
    emit(events.PIN_THREAD_BEGIN, epoch_id)
    world.name_thread("pt_data_pin")
    torch.set_num_threads(1)  # of this thread: the copy must not take the cores from the training step
    if device_index is not None:
        torch.accelerator.set_device_index(device_index)
    while True:
        try:
            message = results.get()
        except Stopped:
            break
        except Exception as error:  # Unreadable: a batch is lost, and main must know
            message = Failed(epoch_id, error)
        if isinstance(message, Result) and not isinstance(message.data, (ExceptionWrapper, StreamEnd)):
            message = pinned(message, device)
        data_queue.put(message)
        del message  # or the batch would live until the next one comes
    emit(events.PIN_THREAD_END, epoch_id)


def pinned(result: Result, device: str | None) -> Result:
    epoch_id, task_id, worker_id = result.epoch_id, result.task_id, result.worker_id
    try:
        return replace(result, data=pin_batch(result.data, device, epoch_id, task_id, worker_id))
    except Exception as error:
        emit(events.PIN_FAILED, epoch_id, task_id, worker_id, text=describe(error))
        where = device if device == HOST else torch.accelerator.current_device_index()
        return replace(result, data=ExceptionWrapper(where=f"in pin memory thread for device {where}"))


def pin_batch(batch: Any, device: str | None, epoch_id: int, task_id: int, worker_id: int = NO_WORKER) -> Any:
    """`pin_memory`, and its events."""
    emit(events.PIN_BEGIN, epoch_id, task_id, worker_id)
    batch = pin_memory(batch, device)
    emit(events.PIN_END, epoch_id, task_id, worker_id)
    return batch


def pin_memory(data: Any, device: str | None = None) -> Any:
    """A copy of `data` whose tensors are in page-locked memory, in the same mappings, sequences and namedtuples.

    An object with a method `pin_memory()` is replaced by what that returns; strings and anything else stay as
    they are. With device "host" tensors are locked by the operating system (`mlock`), or merely copied where its
    limit forbids it (`ulimit -l`); otherwise by torch, for the current accelerator.
    """
    return _map_tensors(lock_pages if device == HOST else operator.methodcaller("pin_memory"), data)


def lock_pages(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy of a tensor of any shape and dtype in memory that the system will not swap out. (A plain copy
    of one that is sparse, nested or quantized, which is more than its memory.)"""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or not tensor.nbytes:
        return tensor.clone()
    pages = worlds.current().page_locked(tensor.nbytes)
    if pages is None:
        return tensor.clone()
    # The tensor keeps the pages: they are unlocked when it is freed.
    locked = torch.frombuffer(pages, dtype=torch.uint8, count=tensor.nbytes).view(tensor.dtype).view(tensor.shape)
    return locked.copy_(tensor)


def _map_tensors(pin: Callable[[torch.Tensor], torch.Tensor], data: Any) -> Any:
    """`data` with `pin` applied to its tensors, in containers of the same types."""
    if isinstance(data, torch.Tensor):
        return pin(data)
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, collections.abc.Mapping):
        return mapping_like(data, {key: _map_tensors(pin, value) for key, value in data.items()})
    if isinstance(data, tuple):
        parts = [_map_tensors(pin, item) for item in data]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    if isinstance(data, collections.abc.Sequence):
        return sequence_like(data, [_map_tensors(pin, item) for item in data])
    return data
