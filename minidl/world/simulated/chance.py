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

    @staticmethod
    def put_seeded() -> None:
        """In place, those that a simulation begins with. (There is one simulation at a time: numpy's generator, which
        takes as long to make as a tenth of a short run, serves them all.)"""
        random.seed(SEED)
        torch.default_generator.manual_seed(SEED)
        _NUMPYS.seed(SEED)
        numpy.random.mtrand.set_bit_generator(_BITS)

    @classmethod
    def spawned(cls, number: int) -> Chance:
        """What a new interpreter begins with. Python and numpy seed theirs with what the system gives them; here it is
        the process's number."""
        return cls(random.Random(number).getstate(), _TORCHS, numpy.random.MT19937(number))

    def forked(self, number: int) -> Chance:
        """What a child begins with, until it is seeded: its parent's, but that Python seeds its own anew."""
        child = Chance.spawned(number)
        child.torch = self.torch.clone()
        child.numpy.state = self.numpy.state
        return child

    def put(self) -> None:
        """In place."""
        random.setstate(self.python)
        torch.set_rng_state(self.torch)
        numpy.random.mtrand.set_bit_generator(self.numpy)


_TORCHS = torch.Generator().manual_seed(SEED).get_state()
_BITS = numpy.random.MT19937(SEED)
_NUMPYS = numpy.random.RandomState(_BITS)
