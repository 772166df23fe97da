"""The random numbers of a simulated process: the states of Python's, torch's and numpy's generators.

In the real world each process has its own. Here they are put in place when a process continues. Every simulation begins
with the same ones, so that a schedule alone determines a run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.random import MT19937, BitGenerator, mtrand

TORCHS = torch.Generator().manual_seed(0).get_state()


@dataclass(frozen=True)
class Chance:
    """The three states."""

    python: Any
    torch: torch.Tensor
    numpy: BitGenerator  # not a state, but the generator itself: each process has one of its own

    @classmethod
    def now(cls) -> Chance:
        """The states that are in place."""
        return cls(random.getstate(), torch.get_rng_state(), mtrand.get_bit_generator())

    @classmethod
    def spawned(cls, number: int) -> Chance:
        """What a new interpreter begins with. Python and numpy take their seeds from the system; here it is the
        process's number."""
        return cls(random.Random(number).getstate(), TORCHS, MT19937(number))

    def forked(self, number: int) -> Chance:
        """What a forked child begins with: its parent's, except that Python reseeds its own."""
        copied = type(self.numpy)()
        copied.state = self.numpy.state
        return replace(self, python=random.Random(number).getstate(), numpy=copied)

    def put(self) -> None:
        """Put these states in place."""
        random.setstate(self.python)
        torch.set_rng_state(self.torch)
        mtrand.set_bit_generator(self.numpy)  # also forgets the second of a pair of normal numbers


FIRST = Chance.spawned(0)  # what every simulation begins with; seeding it is quicker than making another
