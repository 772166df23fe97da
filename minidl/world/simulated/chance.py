"""The random numbers of a simulated process: the states of Python's, torch's and numpy's generators.

In the real world each process has its own. Here they are put in place when a process continues. Every simulation begins
with the same ones, so that a schedule alone determines a run.
"""

from __future__ import annotations

import ctypes
import random
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.random import MT19937, BitGenerator, RandomState, mtrand

SEED = 0
MERSENNE = 2500  # bytes of an MT19937's state: 624 words, and which of them comes next


@dataclass(frozen=True)
class Chance:
    """The three states."""

    python: Any
    torch: torch.Tensor
    numpy: bytes
    bits: BitGenerator  # numpy's: a program may put in another

    @classmethod
    def now(cls) -> Chance:
        """The states that are in place."""
        return cls(random.getstate(), torch.get_rng_state(), bytes(_WORDS), mtrand.get_bit_generator())

    @classmethod
    def spawned(cls, number: int) -> Chance:
        """What a new interpreter begins with. Python and numpy take their seeds from the system; here it is the
        process's number."""
        return cls(_pythons(number), SEEDED.torch, bytes(words_of(MT19937(number))), _BITS)

    def forked(self, number: int) -> Chance:
        """What a forked child begins with: its parent's, except that Python seeds its own anew."""
        assert self.bits is _BITS, "a generator that a program put in numpy's place is not copied by a fork"
        return replace(self, python=_pythons(number))

    def put(self) -> None:
        """Put these states in place."""
        random.setstate(self.python)
        torch.set_rng_state(self.torch)
        _WORDS[:] = self.numpy
        mtrand.set_bit_generator(self.bits)  # also forgets the second of a pair of normal numbers


def _pythons(seed: int) -> Any:
    return random.Random(seed).getstate()


def words_of(bits: MT19937) -> memoryview:
    """The memory that holds a generator's state. (numpy's own way takes 30 us to read it, and as many to put it.)"""
    return memoryview((ctypes.c_char * MERSENNE).from_address(bits.ctypes.state_address)).cast("B")


# All processes draw from numpy's own: of another the loader would have to ask the state, a fifth of a short run.
_BITS = MT19937()
_WORDS = words_of(_BITS)
_seeded = MT19937()
RandomState(_seeded).seed(SEED)

# The states that every simulation begins with.
SEEDED = Chance(_pythons(SEED), torch.Generator().manual_seed(SEED).get_state(), bytes(words_of(_seeded)), _BITS)
