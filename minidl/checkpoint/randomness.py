"""The states of a process's random generators: Python's, numpy's and torch's, and those of the samplers.

A dataset draws from them in its worker, a sampler in main. Who wants the batches that would have come must put them
back. torch has no counterpart; torchdata's StatefulDataLoader leaves the three of each process as they are.

A worker reads its three after every batch, in 2 us: where a generator keeps its state in memory, the memory is copied
(Python would make 625 integers of it). A state is bytes until `state_dict()` wants text, which JSON can write.

    MERSENNE    uint32[624 + 1]    Python's and numpy's state: the words, and which of them comes next
"""

from __future__ import annotations

import ctypes
import json
import random
from array import array
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import numpy.random
import torch

MERSENNE = ctypes.c_uint32 * 625
TORCH = 5056  # bytes of the state of a generator of torch's


def memory_at(address: int) -> memoryview:
    return memoryview(MERSENNE.from_address(address)).cast("B")


def pythons_memory() -> memoryview | None:
    """CPython's generator, where it begins after the header of the object: which word comes next, then the words. None
    for a Python that keeps it in another way."""
    found = memory_at(id(random._inst) + object.__basicsize__)
    words = random.getstate()[1]
    return found if bytes(found) == array("I", [words[-1], *words[:-1]]).tobytes() else None


PYTHON = pythons_memory()
_numpys: tuple[Any, memoryview | None] = None, None  # the bit generator, and its memory if that is known
_numpy_last = b"", b""  # its memory when it was last read, and its state


def read(generators: Sequence[torch.Generator] = ()) -> dict[str, bytes]:
    """{"python": state, "numpy": state, "torch": state, "generator 0": state, ...}"""
    states = {"python": _python(), "numpy": _numpy(), "torch": state_of(torch.default_generator)}
    for number, generator in enumerate(generators):
        states[f"generator {number}"] = state_of(generator)
    return states


def put_back(states: dict[str, bytes], generators: Sequence[torch.Generator] = ()) -> None:
    """What `read` returned, into this process's generators. (A dataset puts back none of the samplers'.)"""
    (index, *words), gauss = mersenne(states["python"])
    random.setstate((3, (*words, index), gauss))
    if len(states["numpy"]) < ctypes.sizeof(MERSENNE):
        numpy.random.set_state(json.loads(states["numpy"]))
    else:
        (*words, position), gauss = mersenne(states["numpy"])
        key = numpy.array(words, numpy.uint32)
        numpy.random.set_state(("MT19937", key, position, int(gauss is not None), gauss or 0.0))
    torch.default_generator.set_state(tensor_of(states["torch"]))
    for number, generator in enumerate(generators):
        if state := states.get(f"generator {number}"):
            generator.set_state(tensor_of(state))


def as_text(states: dict[str, bytes]) -> dict[str, str]:
    return {name: b64encode(state).decode() for name, state in states.items()}


def as_bytes(states: dict[str, str]) -> dict[str, bytes]:
    return {name: b64decode(text) for name, text in states.items()}


def state_of(generator: torch.Generator) -> bytes:
    state = generator.get_state()
    return ctypes.string_at(state.data_ptr(), TORCH)


def tensor_of(state: bytes) -> torch.Tensor:
    """A torch generator's state as torch has it: uint8, 5056 bytes."""
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def mersenne(state: bytes) -> tuple[array[int], float | None]:
    """The integers, and the second number of a pair of normal ones if it has not been asked for yet."""
    size = ctypes.sizeof(MERSENNE)
    return array("I", state[:size]), float(state[size:]) if state[size:] else None


def _python() -> bytes:
    if PYTHON is None:
        _, words, gauss = random.getstate()
        memory = array("I", [words[-1], *words[:-1]]).tobytes()
    else:
        memory, gauss = bytes(PYTHON), random._inst.gauss_next  # type: ignore[attr-defined]
    return memory if gauss is None else memory + repr(gauss).encode()


def _numpy() -> bytes:
    """numpy takes 25 us to hand its state out: asked only if the memory has changed. The second number of a pair of
    normal ones is elsewhere: while there is one, nothing tells that it has gone."""
    global _numpys, _numpy_last
    bit_generator = numpy.random.get_bit_generator()  # type: ignore[attr-defined]
    if bit_generator is not _numpys[0]:
        known = isinstance(bit_generator, numpy.random.MT19937)
        _numpys = bit_generator, memory_at(bit_generator.ctypes.state_address) if known else None
    memory = bytes(_numpys[1] or b"")
    if not memory or memory != _numpy_last[0]:
        state: Any = numpy.random.get_state(legacy=False)
        if not memory:  # somebody has put another bit generator in its place
            _numpy_last = b"", json.dumps(state, default=numpy.ndarray.tolist).encode()
        elif state["has_gauss"]:
            _numpy_last = b"", memory + repr(float(state["gauss"])).encode()
        else:
            _numpy_last = memory, memory
    return _numpy_last[1]
