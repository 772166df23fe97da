"""The states of a process's random generators, as text: Python's, numpy's and torch's, and those of the samplers.

A dataset draws from them in its worker, a sampler in main. Who wants the batches that would have come must put them
back. torch has no counterpart; torchdata's StatefulDataLoader leaves the three of each process as they are.
"""

from __future__ import annotations

import ctypes
import random
from array import array
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import numpy.random
import torch

# A state is read after every batch, so it must be cheap. Most datasets draw from none of the three, or from one: what
# has not changed since it was last read is not written as text again. generator -> (what tells a change, its text)
_last: dict[str, tuple[Any, str]] = {}

MT19937 = 625 * 4  # bytes of numpy's state: 624 words, and which of them comes next


def read(generators: Sequence[torch.Generator] = ()) -> dict[str, Any]:
    """{"python": text, "numpy": text, "torch": text, "generators": [text, ...]}; some 15 us if none has changed."""
    return {
        "python": _python(),
        "numpy": _numpy(),
        "torch": _torch("torch", torch.default_generator),
        "generators": [_torch(str(number), generator) for number, generator in enumerate(generators)],
    }


def put_back(states: dict[str, Any], generators: Sequence[torch.Generator] = ()) -> None:
    """What `read` returned, into this process's generators."""
    words, gauss = states["python"].split()
    random.setstate((3, tuple(array("I", b64decode(words))), None if gauss == "None" else float(gauss)))
    words, position, has_gauss, gauss = states["numpy"].split()
    key = numpy.frombuffer(b64decode(words), numpy.uint32)
    numpy.random.set_state(("MT19937", key, int(position), int(has_gauss), float(gauss)))
    torch.default_generator.set_state(tensor_of(states["torch"]))
    for text, generator in zip(states["generators"], generators, strict=False):  # a dataset puts back none of these
        generator.set_state(tensor_of(text))


def tensor_of(text: str) -> torch.Tensor:
    """A torch generator's state as torch has it: uint8, 5056 bytes."""
    return torch.frombuffer(bytearray(b64decode(text)), dtype=torch.uint8)


def _changed(name: str, sign: Any) -> bool:
    return name not in _last or _last[name][0] != sign


def _torch(name: str, generator: torch.Generator) -> str:
    state = generator.get_state().numpy().tobytes()
    if _changed(name, state):
        _last[name] = state, b64encode(state).decode()
    return _last[name][1]


def _python() -> str:
    _, words, gauss = random.getstate()
    # The last counts the draws; the others are new once all have been drawn (the first is the same after every seed).
    sign = words[1], words[-1], gauss
    if _changed("python", sign):
        _last["python"] = sign, f"{b64encode(array('I', words)).decode()} {gauss!r}"
    return _last["python"][1]


def _numpy() -> str:
    # numpy takes 40 us to hand its state out, but tells where it is. A second number of a pair of normal ones is drawn
    # from no word: while there is one, nothing tells that it has gone.
    bit_generator = numpy.random.get_bit_generator()  # type: ignore[attr-defined]
    sign = ctypes.string_at(bit_generator.ctypes.state_address, MT19937)
    if _changed("numpy", sign):
        state: Any = numpy.random.get_state(legacy=False)
        words, position = state["state"]["key"], state["state"]["pos"]
        text = f"{b64encode(words.tobytes()).decode()} {position} {state['has_gauss']} {state['gauss']!r}"
        _last["numpy"] = None if state["has_gauss"] else sign, text
    return _last["numpy"][1]
