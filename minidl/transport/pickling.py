"""Messages as bytes, and back: with the memory of their tensors and arrays apart from the rest.

    Result(batch) -> Pickled   -> a stream of a few hundred bytes; for each storage and each buffer, where it lies
    Result(batch) <- Unpickler <- the stream, and the Region that their bytes are in by now

A small tensor is pickled with its bytes; a message that has only such ones is a pickle like any other.

Pickle protocol 5 hands out the memory of arrays by itself (PEP 574, "out of band"). For tensors it is done here.

Legend
    storage   0   the memory of a tensor, numbered within a message. Several tensors may lie in one
    buffer    0   the memory of an array, numbered after the storages
"""

from __future__ import annotations

import ctypes
import functools
import io
import pickle
import struct
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from minidl.transport.memory import ALIGNED, HEADER, address_of

# A number says which of these a tensor has: finding one by its name takes longer than building the tensor.
DTYPES = [torch.float32, torch.int64, torch.uint8, torch.float64, torch.int32, torch.bool, torch.float16]
EMPTY = [torch.empty(0, dtype=dtype, device="cpu") for dtype in DTYPES]  # `new_empty` is the quickest way to another
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
STRIDED = torch.strided


class Pickled(pickle.Pickler):
    """A message pickled without the memory of its tensors and arrays, and where that lies. A tensor that is more than
    memory with a shape (a parameter, sparse, a subclass, ...) is taken apart by torch's own reducers: into storages.

    A tensor is pickled as a call of a method of Region, for which Unpickler finds that of its own region."""

    def __init__(self, message: Any, reducers: Any, lent: int) -> None:
        """`lent`: see World. A tensor of fewer bytes is small."""
        self.stream = io.BytesIO()
        self._lent = lent
        self._small: dict[int, torch.Tensor] = {}  # storage -> the tensor that has brought its bytes
        self._numbers: dict[int, int] = {}
        self._storages: list[torch.UntypedStorage] = []
        self._used: list[tuple[int, int]] = []  # of each, its first and last byte that are used
        self._buffers: list[pickle.PickleBuffer] = []  # arrays'
        super().__init__(self.stream, pickle.HIGHEST_PROTOCOL, buffer_callback=self._buffers.append)
        self.dispatch_table = reducers
        self.dump(message)
        self.firsts: list[int] = []  # of each storage, its first byte that is sent
        self.spans: list[tuple[int, int]] = []
        for storage, (first, last) in zip(self._storages, self._used, strict=True):
            nbytes = storage.nbytes()
            if 2 * (last - first) >= nbytes:  # less is sent alone; torch sends the whole for the smallest view
                first, last = 0, nbytes
            self.firsts.append(first)
            self.spans.append((storage.data_ptr() + first, last - first))
        self._arrays = [np.asarray(buffer.raw()) for buffer in self._buffers]
        self.spans += [(address_of(array), array.nbytes) for array in self._arrays]

    def pieces(self, begins: list[int], slot: int, nbytes: int = 0, is_new: bool = False) -> list[Any]:
        """All but the memory: `nbytes` in a slot."""
        stream = self.stream.getbuffer()
        table = [*begins, *(size for _, size in self.spans), *self.firsts]
        header = HEADER.pack(slot, is_new, len(self._storages), len(self._buffers), nbytes)
        return [header, struct.pack(f"<{len(table)}Q", *table), stream]

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is torch.Tensor and _is_plain(thing):
            return self._reduced(thing)
        if type(thing) is torch.UntypedStorage and thing.device.type == "cpu":
            if thing._cdata in self._small:
                return torch.Tensor.untyped_storage, (self._small[thing._cdata],)
            return Region.storage, (self._number(thing, 0, thing.nbytes()),)
        if isinstance(thing, np.ndarray) and not (thing.flags.writeable and thing.flags.forc and thing.dtype.isnative):
            return thing.__reduce_ex__(pickle.DEFAULT_PROTOCOL)  # torch's transport uses it, and it changes them
        return NotImplemented

    def _reduced(self, tensor: torch.Tensor) -> Any:
        storage, shape, stride = tensor.untyped_storage(), tuple(tensor.shape), tensor.stride()
        key, nbytes, code = storage._cdata, storage.nbytes(), CODES.get(tensor.dtype)
        if key in self._small:
            return view, (storage, tensor.dtype, tensor.storage_offset(), shape, stride)
        is_whole = tensor.nbytes == nbytes and code is not None and stride == _strides(shape)
        if nbytes < self._lent and is_whole and key not in self._numbers:
            self._small[key] = tensor
            return small, (ctypes.string_at(tensor.data_ptr(), nbytes), code, shape)
        number = self._number(storage, *(_extent(tensor) if tensor.nbytes < nbytes else (0, nbytes)))
        return Region.part, (number, tensor.dtype, tensor.storage_offset(), shape, stride)

    def _number(self, storage: torch.UntypedStorage, first: int, last: int) -> int:
        """A storage's number. It is used from its byte `first` to its byte `last`."""
        number = self._numbers.setdefault(storage._cdata, len(self._storages))
        if number == len(self._storages):
            self._storages.append(storage)
            self._used.append((first, last))
        else:
            before = self._used[number]
            self._used[number] = min(first, before[0]), max(last, before[1])
        return number


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its memory, dtype, shape and strides are all there is to it."""
    if not tensor.is_cpu or tensor.layout is not STRIDED or tensor.requires_grad or tensor.is_quantized:
        return False
    return not (tensor.is_conj() or tensor.is_neg() or tensor.is_nested or tensor._is_zerotensor())


@functools.lru_cache(1024)
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Those that `resize_` gives. (A contiguous tensor may have others: a single channel, say, may have any stride.)"""
    return torch.empty(shape, device="meta").stride()


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The first byte of its storage that it uses, and the first one after it that it does not."""
    first = tensor.storage_offset()
    last = first + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    end = (last + 1) * tensor.itemsize if tensor.numel() else first * tensor.itemsize
    return int(first * tensor.itemsize // ALIGNED * ALIGNED), int(end)


class Region:
    """The bytes of a message's storages and arrays, and its table: where each begins, how many bytes it has, and for
    the storages, which of its bytes is the first here. Tensors and arrays are built of them.

    What has at least `lent` bytes is lent: it lies here for good. Anything smaller is copied, so that it can be
    kept without the others.
    """

    def __init__(self, data: Any, table: Sequence[int], count: int, lent: int) -> None:
        self._view, self._address = memoryview(data), address_of(data)
        self._begins, self._sizes, self._firsts = table[:count], table[count : 2 * count], table[2 * count :]
        self._lent = lent
        self._tensors: dict[int, torch.Tensor] = {}  # storage -> a tensor upon it
        # Of each that is lent: a weak reference to what all that lies there refers to, its first and its last byte.
        self.leaves: list[tuple[weakref.ref[Any], int, int]] = []

    def part(self, number: int, dtype: torch.dtype, offset: int, shape: Sequence[int], stride: Sequence[int]) -> Any:
        offset -= self._firsts[number] // dtype.itemsize
        return view(self.storage(number), dtype, offset, shape, stride)

    def storage(self, number: int) -> torch.UntypedStorage:
        if number not in self._tensors:
            self._tensors[number] = upon(self.piece(number), torch.uint8)
        return self._tensors[number].untyped_storage()

    def arrays(self) -> Iterator[memoryview]:
        """They are numbered after the storages."""
        return map(self.piece, range(len(self._firsts), len(self._sizes)))

    def piece(self, number: int) -> memoryview:
        """Of a storage or an array: once for each."""
        begin, size = self._begins[number], self._sizes[number]
        if size < self._lent:
            piece: Any = torch.empty(size, dtype=torch.uint8, device="cpu").numpy()  # aligned as torch's memory is
            ctypes.memmove(address_of(piece), self._address + begin, size)
        else:
            piece = np.frombuffer(self._view, np.uint8, size, begin)  # (upon the array itself it would not keep that)
            self.leaves.append((weakref.ref(piece), begin, begin + size))
        return memoryview(piece)


class Unpickler(pickle.Unpickler):
    """Builds tensors and arrays upon memory that is already there."""

    def __init__(self, stream: Any, region: Region) -> None:
        super().__init__(io.BytesIO(stream), buffers=region.arrays())
        # Not methods of its own: it keeps what it has found, which would keep it, and the memory with it.
        self._ours = {(__name__, f"Region.{name}"): getattr(region, name) for name in ("part", "storage")}

    def find_class(self, module: str, name: str) -> Any:
        return self._ours.get((module, name)) or super().find_class(module, name)


def small(data: bytes, code: int, shape: Sequence[int]) -> torch.Tensor:
    """A tensor with memory of its own."""
    tensor = EMPTY[code].new_empty(shape)
    if data and not tensor.data_ptr():
        raise RuntimeError("a mode of torch (FakeTensorMode, say) makes tensors without memory here")
    ctypes.memmove(tensor.data_ptr(), data, len(data))
    return tensor


def view(storage: Any, dtype: torch.dtype, offset: int, shape: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, shape, stride)


def upon(piece: memoryview, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of one dimension upon a piece of memory, which it keeps."""
    return torch.frombuffer(piece, dtype=dtype) if piece.nbytes else torch.empty(0, dtype=dtype, device="cpu")
