"""The random numbers of a simulated process: the states of Python's, torch's and numpy's generators.

In the real world each process has its own. Here they are put in place when a process continues. Every simulation begins
with the same ones, so that a schedule alone determines a run.
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
        """The states that are in place."""
        return cls(random.getstate(), torch.get_rng_state(), numpy.random.mtrand.get_bit_generator())

    @staticmethod
    def put_seeded() -> None:
        """Put in place the states that every simulation begins with. (Making numpy's generator takes as long as a tenth
        of a short run. One serves all simulations, since there is one at a time.)"""
        random.seed(SEED)
        torch.default_generator.manual_seed(SEED)
        _NUMPYS.seed(SEED)
        numpy.random.mtrand.set_bit_generator(_BITS)

    @classmethod
    def spawned(cls, number: int) -> Chance:
        """What a new interpreter begins with. Python and numpy take their seeds from the system; here it is the
        process's number."""
        return cls(random.Random(number).getstate(), _TORCHS, numpy.random.MT19937(number))

    def forked(self, number: int) -> Chance:
        """What a forked child begins with: its parent's, except that Python seeds its own anew."""
        child = Chance.spawned(number)
        child.torch = self.torch.clone()
        child.numpy.state = self.numpy.state
        return child

    def put(self) -> None:
        """Put these states in place."""
        random.setstate(self.python)
        torch.set_rng_state(self.torch)
        numpy.random.mtrand.set_bit_generator(self.numpy)


_TORCHS = torch.Generator().manual_seed(SEED).get_state()
_BITS = numpy.random.MT19937(SEED)
_NUMPYS = numpy.random.RandomState(_BITS)
