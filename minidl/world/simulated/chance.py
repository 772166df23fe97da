"""The random numbers of a simulated process: the states of Python's, torch's and numpy's generators.

In the real world each process has its own. Here they are put in place when a process goes on. Every simulation begins
with the same ones, so that chance has no part in it that the schedule does not tell of.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy.random
import torch

SEED = 0


@dataclass
class Chance:
    """The three states."""

    python: Any
    torch: torch.Tensor
    numpy: numpy.random.BitGenerator

    @classmethod
    def now(cls) -> Chance:
        """Those in place."""
        return cls(random.getstate(), torch.get_rng_state(), numpy.random.mtrand.get_bit_generator())

    @classmethod
    def seeded(cls) -> Chance:
        """Those that a simulation begins with."""
        return _SEEDED.copy()

    def copy(self) -> Chance:
        """The same states, which can change by themselves."""
        numpys = numpy.random.MT19937(SEED)  # a seed is faster than to ask the system for one
        numpys.state = self.numpy.state  # type: ignore[assignment]
        return Chance(self.python, self.torch.clone(), numpys)

    def forked(self, number: int) -> Chance:
        """What a child begins with, until it is seeded: its parent's. Python seeds its own anew after a fork, with what
        the system gives it; here with the process's number."""
        child = self.copy()
        child.python = random.Random(number).getstate()
        return child

    def put(self) -> None:
        """In place."""
        random.setstate(self.python)
        torch.set_rng_state(self.torch)
        numpy.random.mtrand.set_bit_generator(self.numpy)


_SEEDED = Chance(
    random.Random(SEED).getstate(), torch.Generator().manual_seed(SEED).get_state(), numpy.random.MT19937(SEED)
)
