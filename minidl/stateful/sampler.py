"""The index sampler as an iterator draws from it: it knows how far it is, and can go on from there.

A sampler and its iterator may tell their place by `state_dict()`, and take it back. Another sampler is wound forward:
begun again, with the random generators as they were then, and asked for as many keys. A checksum of all keys shows
whether they are the same.

Legend
    keys      [12, 13, 14, 15]   the content of one task
    drawn     7                  tasks whose keys the sampler has given in this epoch, in this process or before
    pending   [[8, 9], ...]      keys that a stopped run had drawn and not yielded: they come first

torchdata: torchdata.stateful_dataloader.sampler
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import zlib
from base64 import b64decode, b64encode
from collections import deque
from typing import Any

import numpy
import torch.utils.data

from minidl.data.sampler import BatchSampler, InfiniteConstantSampler
from minidl.stateful.dataset import give_back, state_of

BATCHING = (BatchSampler, torch.utils.data.BatchSampler)  # these themselves: nobody knows what a subclass does


class Draws:
    """Iterating over it draws the keys of one task after another, as from the loader's index sampler."""

    def __init__(self, loader: Any) -> None:
        self.index_sampler = loader._index_sampler
        self.batches = type(self.index_sampler) in BATCHING
        self.sampler = self.index_sampler.sampler if self.batches else self.index_sampler
        self.endless = isinstance(self.sampler, InfiniteConstantSampler)
        self.generators = Generators(loader)
        self.pending: deque[Any] = deque()
        self.drawn = self.sum = 0
        self.ended = False
        self.drawing = False  # if this stays true, the sampler has raised, or was interrupted
        # Some samplers draw their random numbers when they are iterated over, others when they are first asked.
        self.begun_with = [self.generators.read()]
        self.iterator = None if self.batches else iter(self.sampler)  # torch's, too, waits until it is asked

    def __iter__(self) -> Draws:
        return self

    def __next__(self) -> Any:
        if self.pending:
            return self.pending.popleft()
        if len(self.begun_with) == 1:
            self.begun_with.append(self.generators.read())
        self.drawing = True
        try:
            keys = self._draw()
        except StopIteration:
            self.drawing, self.ended = False, True
            raise
        self.sum = 0 if self.endless else checksum(keys, self.sum)
        self.drawn += 1
        self.drawing = False
        return keys

    def _draw(self) -> Any:
        if self.iterator is None:
            self.iterator = iter(self.sampler)
        if not self.batches:
            return next(self.iterator)
        size = self.index_sampler.batch_size
        keys = [] if self.ended else list(itertools.islice(self.iterator, size))
        self.ended = len(keys) < size
        if not keys or (self.ended and self.index_sampler.drop_last):
            raise StopIteration
        return keys

    def place(self) -> dict[str, Any]:
        """Where it is, in torchdata's words, and under "minidl" what winding needs."""
        sampler_state, iter_state = state_of(self.sampler), state_of(self.iterator)
        if self.drawing and (sampler_state is not None or iter_state is not None):
            name = type(self.sampler).__name__
            raise RuntimeError(f"{name} was interrupted while it drew, or has failed: nothing tells where it is")
        return {
            "_index_sampler_state": sampler_state,
            "_sampler_iter_state": iter_state,
            "_sampler_iter_yielded": self.drawn,
            "minidl": {"sum": self.sum, "ended": self.ended, "begun_with": self.begun_with},
        }

    def go_on(self, place: dict[str, Any], in_flight: list[Any]) -> None:
        """From the start to a place. ValueError if it is not found."""
        ours, sampler_state, iter_state = place["minidl"], place["_index_sampler_state"], place["_sampler_iter_state"]
        if sampler_state is None and iter_state is None and not self.endless:
            self._wind(place["_sampler_iter_yielded"], **ours)
        elif ours["ended"]:  # nothing but what is in flight is left of this epoch
            self.begin_after(sampler_state)
            self.iterator = iter(())
        elif not self.endless and place["_sampler_iter_yielded"] == 0:  # what it tells is of the epoch before
            self.begin_after(sampler_state)
            self.iterator = None if self.batches else iter(self.sampler)
        else:
            give_back(self.sampler, sampler_state)
            self.iterator = iter(self.sampler)
            give_back(self.iterator, iter_state)
        self.drawn, self.sum, self.begun_with = place["_sampler_iter_yielded"], ours["sum"], ours["begun_with"]
        self.pending.extend(in_flight)

    def _wind(self, drawn: int, sum: int, ended: bool, begun_with: list[list[str]]) -> None:
        for states in begun_with[1:]:  # it was asked
            self.begun_with = begun_with
            self.generators.put_back(states)
        for _ in itertools.islice(self, drawn):
            pass
        if (self.drawn, self.sum) != (drawn, sum):
            name = type(self.sampler).__name__
            raise ValueError(f"{name} does not come out where the state says: begun again, it gives other keys")
        if ended:
            with contextlib.suppress(StopIteration):
                next(self)

    def begin_after(self, sampler_state: Any) -> None:
        """Between two epochs: some samplers give the rest of one, which may be nothing, to their next iterator. Others
        have begun the next by themselves."""
        give_back(self.sampler, sampler_state)
        if sampler_state is not None and next(iter(self.sampler), None) is not None:
            give_back(self.sampler, sampler_state)


def checksum(keys: Any, before: int) -> int:
    text = repr(keys)
    if " at 0x" in text:  # it shows where an object lies, which another process need not repeat
        text = type(keys).__name__
    return zlib.crc32(text.encode(), before)


class Generators:
    """The random generators that decide about the keys: the three of the process, and those of the samplers. Their
    states are text, which JSON can write."""

    def __init__(self, loader: Any) -> None:
        owners = loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)
        found = torch.default_generator, *(getattr(owner, "generator", None) for owner in owners)
        self.torchs = list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())

    def read(self) -> list[str]:
        numpys = json.dumps(numpy.random.get_state(legacy=False), default=numpy.ndarray.tolist)
        torchs = [b64encode(each.get_state().numpy().tobytes()).decode() for each in self.torchs]
        return [json.dumps(random.getstate()), numpys, *torchs]

    def put_back(self, states: list[str]) -> None:
        pythons, numpys, *torchs = states
        if len(torchs) != len(self.torchs):
            raise ValueError("the state is of another loader: one has more random generators than the other")
        version, words, gauss = json.loads(pythons)
        random.setstate((version, tuple(words), gauss))
        numpy.random.set_state(json.loads(numpys))
        for generator, text in zip(self.torchs, torchs, strict=True):
            generator.set_state(torch.frombuffer(bytearray(b64decode(text)), dtype=torch.uint8))
