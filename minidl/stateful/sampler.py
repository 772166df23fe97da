"""The index sampler as an iterator draws from it, with a record of how far it is, from which it can resume.

A sampler may report its place by `state_dict()` and take it back. It is asked after each draw, not when a state is
wanted: by then it may have begun its next epoch, or stand in the middle of a draw. A sampler without one is
fast-forwarded: started again, with the random generators as they were then, and asked for as many keys. A checksum of
all keys shows whether they are the same.

Legend
    keys      [12, 13, 14, 15]             the content of one task
    asked     5                            the id of the task whose keys are asked for next
    drawn     7                            tasks whose keys were drawn in this epoch, by this process or before it
    tasks     {3: [12, 13, 14, 15], ...}   those in flight: their keys are drawn, and their batches not yielded

torchdata: torchdata.stateful_dataloader.sampler
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import zlib
from typing import Any

import numpy
import torch.utils.data

from minidl.data.sampler import BatchSampler
from minidl.stateful.dataset import give_back, is_stateful, state_of

BATCHING = (BatchSampler, torch.utils.data.BatchSampler)  # exactly these: a subclass may do anything


class Draws:
    """Gives the keys of one task after another, as an iterator of the loader's index sampler does."""

    def __init__(self, loader: Any) -> None:
        self.index_sampler = loader._index_sampler
        batching = type(self.index_sampler) in BATCHING
        self.sampler = self.index_sampler.sampler if batching else self.index_sampler  # this may report its place
        self.generators = Generators(loader)
        self.tasks: dict[int, Any] = {}
        self.asked = self.drawn = self.sum = self.ended = 0  # ended: 1 once it was asked for more than there is
        self.told: tuple[int, Any] = (0, None)  # the state after this many draws
        # Some samplers draw their random numbers when they are iterated over, others when they are first asked.
        self.begun_with = [self.generators.read()]
        self.iterator = iter(self.index_sampler)

    def __next__(self) -> Any:
        if self.asked not in self.tasks:
            self._draw()
        self.asked += 1
        return self.tasks[self.asked - 1]

    def _draw(self) -> None:
        if len(self.begun_with) == 1:
            self.begun_with.append(self.generators.read())
        self.ended = 1
        keys, self.ended = next(self.iterator), 0
        # After a last, short batch it is not asked: it has found its end, and may be in its next epoch already.
        short = self.sampler is not self.index_sampler and len(keys) < self.index_sampler.batch_size
        told = self.told if short else (self.drawn + 1, copy.deepcopy(state_of(self.sampler)))
        text = repr(keys).split(" at 0x")[0]  # not the address of an object: another process need not repeat it
        new_sum = zlib.crc32(text.encode(), self.sum)
        # All or nothing: there is no call between these lines, so no handler of Ctrl-C runs there.
        self.tasks[self.asked] = keys
        self.told = told
        self.sum = new_sum
        self.drawn += 1

    def place(self) -> dict[str, Any]:
        """Where it is, in torchdata's words."""
        if self.drawn == 0 and is_stateful(self.sampler):
            # What it reports now may still be the end of the epoch before. So the first keys are drawn first.
            with contextlib.suppress(StopIteration):
                self._draw()
        return {"_index_sampler_state": self.told[1], "_sampler_iter_state": None, "_sampler_iter_yielded": self.drawn}

    def go_on(self, place: dict[str, Any], ours: dict[str, Any], finished: bool) -> None:
        """From the start to a place. ValueError if it cannot be reached."""
        told, drawn = place["_index_sampler_state"], place["_sampler_iter_yielded"]
        if told is not None:
            give_back(self.sampler, told)
            self.iterator = iter(self.index_sampler)
            for _ in range(drawn - ours["told_after"]):  # it was not asked after the last, short batch
                next(self.iterator, None)
            self.drawn, self.sum = drawn, ours["sum"]
        elif finished:  # the next epoch may be chosen already: it can't be fast-forwarded
            self.iterator = iter(())
            self.drawn, self.sum = drawn, ours["sum"]
        for states in ours["begun_with"][1:]:  # as they were when it was first asked; then it draws up to the place
            self.generators.put_back(states)
        with contextlib.suppress(StopIteration):
            while self.drawn < drawn or self.ended < ours["ended"]:  # at the end some draw random numbers once more
                self._draw()
        if (self.drawn, self.sum) != (drawn, ours["sum"]):
            raise ValueError(f"{type(self.sampler).__name__} does not reach the place in the state: its keys differ")
        self.told, self.begun_with = (ours["told_after"], told), ours["begun_with"]
        self.tasks = dict(enumerate(ours["in_flight"]))


class Generators:
    """The random generators that decide the keys: the three of the process, and those of the samplers. Their states are
    one text, which JSON can write."""

    def __init__(self, loader: Any) -> None:
        owners = loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)
        found = torch.default_generator, *(getattr(owner, "generator", None) for owner in owners)
        self.torchs = list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())

    def read(self) -> str:
        torchs = [each.get_state().numpy().tobytes().hex() for each in self.torchs]
        states = random.getstate(), numpy.random.get_state(legacy=False), torchs
        return json.dumps(states, default=numpy.ndarray.tolist)

    def put_back(self, states: str) -> None:
        (version, words, gauss), numpys, torchs = json.loads(states)
        random.setstate((version, tuple(words), gauss))
        numpy.random.set_state(numpys)
        for generator, text in zip(self.torchs, torchs, strict=True):
            generator.set_state(torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8))
