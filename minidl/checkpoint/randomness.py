"""The states of a process's random generators: Python's, numpy's and torch's, and those of the samplers.

A dataset draws from them in its worker, a sampler in main. Who wants the batches that would have come must put them
back. torch has no counterpart; torchdata's StatefulDataLoader leaves the three of each process as they are.

A worker asks after every batch whether its three have changed. Reading their states by the usual ways would take longer
than making a small batch: `signs` copies their memory, which is searched for once, and checked. A state is bytes until
`state_dict()` wants text, which JSON can write.

    MERSENNE    uint32[625]           Python's and numpy's state: 624 words, and which of them comes next
    GAUSS       int, pad, float64     numpy's: the second number of a pair of normal ones, if it is still to come
"""

from __future__ import annotations

import ctypes
import json
import random
import struct
from array import array
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import numpy.random
import torch

MERSENNE = struct.calcsize("625I")
GAUSS = struct.Struct("i4xd")
TORCH = 5056  # bytes of the state of a generator of torch's
RANDOM: Any = random._inst
RAND: Any = numpy.random.mtrand._rand
BITS = RAND._bit_generator


def memory_at(address: int, size: int, unit: Any = "I") -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B").cast(unit)


def pythons_memory() -> memoryview | None:
    """It follows the header of the object: which word comes next, then the words."""
    found = memory_at(id(RANDOM) + object.__basicsize__, MERSENNE)
    words = random.getstate()[1]
    return found if bytes(found) == array("I", [words[-1], *words[:-1]]).tobytes() else None


def numpys_memory() -> memoryview | None:
    return memory_at(BITS.ctypes.state_address, MERSENNE) if isinstance(BITS, numpy.random.MT19937) else None


def gauss_memory() -> memoryview | None:
    """Where numpy keeps its pair is seen in another generator, of which one number was taken."""
    other = numpy.random.RandomState(1)
    other.standard_normal()
    state: Any = other.get_state(legacy=False)
    at = ctypes.string_at(id(other), other.__sizeof__()).find(GAUSS.pack(1, state["gauss"]))
    return memory_at(id(RAND) + at, GAUSS.size, "Q") if at >= 0 else None


def torchs_memory() -> memoryview | None:
    """Which word comes next, the 624 words, and normal numbers that are still to come, in 24 bytes."""

    def engine(generator: torch.Generator) -> int:
        return ctypes.c_void_p.from_address(id(generator) + object.__basicsize__).value or 0

    other = torch.Generator()
    torch.rand((), generator=other)
    words = other.get_state().numpy().view("u8")[3:627].astype("u4").tobytes()
    at, size = ctypes.string_at(engine(other), len(words) + 128).find(words), 4 + len(words) + 24
    if at < 0:
        return None
    found = memory_at(engine(other) + at - 4, size)
    seen = {(torch.randn((), generator=other, dtype=torch.float64), bytes(found[625:]))[1] for _ in range(2)}
    return memory_at(engine(torch.default_generator) + at - 4, size) if len(seen) == 2 else None


PYTHON, NUMPY, NUMPYS_GAUSS, TORCHS = pythons_memory(), numpys_memory(), gauss_memory(), torchs_memory()


def signs() -> object:
    """Something else once a number was drawn, in 0.3 us. If memory was not found, it is something else each time."""
    if not (PYTHON and NUMPY and NUMPYS_GAUSS and TORCHS) or RAND._bit_generator is not BITS:
        return object()
    return PYTHON.tobytes(), RANDOM.gauss_next, NUMPY.tobytes(), NUMPYS_GAUSS.tobytes(), TORCHS.tobytes()


def read(generators: Sequence[torch.Generator] = ()) -> dict[str, bytes]:
    """{"python": state, "numpy": state, "torch": state, "generator 0": state, ...}"""
    states = {"python": _python(), "numpy": _numpy(), "torch": state_of(torch.default_generator)}
    for number, generator in enumerate(generators):
        states[f"generator {number}"] = state_of(generator)
    return states


def put_back(states: dict[str, bytes], generators: Sequence[torch.Generator] = ()) -> None:
    """What `read` returned, into this process's generators. (A dataset puts back none of the samplers'.)"""
    (index, *words), rest = mersenne(states["python"])
    random.setstate((3, (*words, index), struct.unpack("d", rest)[0] if rest else None))
    if len(states["numpy"]) != MERSENNE + GAUSS.size:  # it is JSON: shorter, or much longer
        numpy.random.set_state(json.loads(states["numpy"]))
    else:
        (*words, position), rest = mersenne(states["numpy"])
        numpy.random.set_state(("MT19937", numpy.array(words, numpy.uint32), position, *GAUSS.unpack(rest)))
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


def mersenne(state: bytes) -> tuple[array[int], bytes]:
    return array("I", state[:MERSENNE]), state[MERSENNE:]


def _python() -> bytes:
    """The words, and the second number of a pair of gauss() if it is still to come."""
    if PYTHON is None:
        _, words, gauss = random.getstate()
        memory = array("I", [words[-1], *words[:-1]]).tobytes()
    else:
        memory, gauss = bytes(PYTHON), RANDOM.gauss_next
    return memory if gauss is None else memory + struct.pack("d", gauss)


def _numpy() -> bytes:
    """The words and GAUSS; of another bit generator that somebody has put in, what numpy tells, as JSON."""
    if NUMPY is None or NUMPYS_GAUSS is None or RAND._bit_generator is not BITS:
        return json.dumps(numpy.random.get_state(legacy=False), default=numpy.ndarray.tolist).encode()
    return bytes(NUMPY) + bytes(NUMPYS_GAUSS)
