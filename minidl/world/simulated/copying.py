"""Copies for another process: by fork, by spawn, and of a tensor's memory."""

from __future__ import annotations

import io
import pickle
import types
from typing import Any

import numpy as np
import torch

from minidl.transport.memory import address_of
from minidl.transport.pickling import upon
from minidl.world.simulated import machine as machines
from minidl.world.simulated.processes import Luggage


def duplicate(thing: Any, by_pickle_only: bool) -> Any:
    """The copy of `thing` that a new process has."""
    machines.current_machine().luggage = Luggage()
    data = io.BytesIO()
    (pickle.Pickler if by_pickle_only else Forking)(data, pickle.HIGHEST_PROTOCOL).dump(thing)
    return pickle.loads(data.getbuffer())


def reduce_storage(storage: torch.TypedStorage) -> tuple[Any, ...]:
    """How a tensor's memory is pickled. (torch's own way includes its address, so the number of bytes would vary by
    chance.)"""
    flat = torch.empty(0, dtype=torch.uint8).set_(storage.untyped())
    return _storage, (flat.numpy().tobytes(), storage.dtype)


def _storage(data: bytes, dtype: torch.dtype) -> torch.TypedStorage:
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    return torch.TypedStorage(wrap_storage=flat.untyped_storage(), dtype=dtype, _internal=True)


class Forking(pickle.Pickler):
    """Also copies what a fork copies and pickle refuses: functions within functions, with what they close over. A class
    within a function stays the same object, as classes do not change. What lies in shared memory stays there."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, (torch.TypedStorage, np.ndarray)):
            return _reduce_shared(thing)
        if not isinstance(thing, (types.FunctionType, type)) or "<" not in thing.__qualname__:  # <locals>, <lambda>
            return NotImplemented
        functions = machines.current_machine().luggage.functions
        functions.append(thing)
        if isinstance(thing, type):
            return _same, (len(functions) - 1,)
        state = [cell.cell_contents for cell in thing.__closure__ or ()], thing.__dict__
        return _hollow, (len(functions) - 1,), state, None, None, _fill


def _reduce_shared(thing: Any) -> Any:
    """A tensor's memory, or an array, that lies in memory which processes share."""
    is_array = isinstance(thing, np.ndarray)
    address = address_of(thing) if is_array else thing.data_ptr()
    for number, memory in machines.current_machine().memories.items():
        begin = address - address_of(memory)
        if 0 <= begin < memory.nbytes:
            if is_array:
                return _array_in, (number, begin, thing.dtype, thing.shape, thing.strides)
            return _storage_in, (number, begin, thing.nbytes(), thing.dtype)
    return NotImplemented


def _storage_in(number: int, begin: int, nbytes: int, dtype: torch.dtype) -> torch.TypedStorage:
    piece = memoryview(machines.current_machine().memories[number])[begin : begin + nbytes]
    return torch.TypedStorage(wrap_storage=upon(piece, torch.uint8).untyped_storage(), dtype=dtype, _internal=True)


def _array_in(number: int, begin: int, dtype: Any, shape: Any, strides: Any) -> Any:
    return np.ndarray(shape, dtype, machines.current_machine().memories[number], begin, strides)


def _same(number: int) -> Any:
    return machines.current_machine().luggage.functions[number]


def _hollow(number: int) -> types.FunctionType:
    """A copy of a function whose cells are still empty. (It may itself be among the things that it closes over.)"""
    function = _same(number)
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    return types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)


def _fill(function: types.FunctionType, state: tuple[list[Any], dict[str, Any]]) -> None:
    contents, attributes = state
    for cell, content in zip(function.__closure__ or (), contents, strict=True):
        cell.cell_contents = content
    function.__dict__.update(attributes)
