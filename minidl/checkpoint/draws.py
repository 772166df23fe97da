"""The index sampler as an iterator draws from it: it knows how far it is, and can go on from there.

A sampler and its iterator may tell their place by `state_dict()`, and take it back. Another sampler is wound forward:
begun again, with the random generators as they were then, and asked for as many keys.

Legend
    keys      [12, 13, 14, 15]   the content of one task
    drawn     7                  tasks whose keys the sampler has given in this epoch, in this process or before
    pending   [[8, 9], ...]      keys that a stopped run had drawn and not yielded: they come first
    mark      drawn=5, ...       the place before the keys of a task

torch has no counterpart; torchdata: torchdata.stateful_dataloader.sampler
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from base64 import b64decode, b64encode
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.utils.data

from minidl.checkpoint import randomness
from minidl.checkpoint.source import is_stateful, winding
from minidl.data.sampler import BatchSampler, InfiniteConstantSampler, RandomSampler

if TYPE_CHECKING:
    from minidl.loader import DataLoader

BATCHING = (BatchSampler, torch.utils.data.BatchSampler)  # these themselves: nobody knows what a subclass does
SHUFFLING = (RandomSampler, torch.utils.data.RandomSampler)


class Mark(NamedTuple):
    """A place in the sampler: after `drawn` tasks, which have `samples` keys together."""

    drawn: int
    samples: int
    sampler_state: Any
    iter_state: Any


class Seen:
    """A sampler whose iterator is remembered: a BatchSampler makes it when it is first asked."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.iterator: Any = None

    def __iter__(self) -> Iterator[Any]:
        if self.iterator is None:
            self.iterator = iter(self.sampler)
        return self.iterator


class ShuffleState(dict[str, Any]):
    """{"yielded": 12, "generator": text}: of a RandomSampler's iterator, for torchdata, which takes a tensor for the
    generator. JSON writes the text; pickle, and torch.save, write a plain dict with the tensor."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return randomness.tensor_of(b64decode(value)) if key == "generator" else value

    def __deepcopy__(self, memo: Any) -> ShuffleState:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, ([(key, self[key]) for key in self],)


class Draws:
    """Iterating over it draws the keys of one task after another, as from the loader's index sampler."""

    begun_with: list[dict[str, bytes]]  # the generators: when the sampler was iterated, and when it was first asked

    def __init__(self, loader: DataLoader) -> None:
        self.index_sampler = loader._index_sampler
        self.batches = type(self.index_sampler) in BATCHING
        self.sampler = self.index_sampler.sampler if self.batches else self.index_sampler
        self.shuffles = type(self.sampler) in SHUFFLING
        self.generators = generators_of(loader)
        self.auto_collation = loader._auto_collation
        self.iterable = isinstance(self.sampler, InfiniteConstantSampler)
        self.pending: deque[tuple[Any, Mark]] = deque()
        self.begun_with = []
        self.drawn = self.samples = 0
        self.given = ""  # of an epoch that torchdata began: the generator that shuffled it, as text
        self.ended = False  # the sampler was asked for more than it has, or has raised: random numbers may be drawn
        self._seen = Seen(self.sampler)
        self.share = share_of(self.sampler)

    def __len__(self) -> int:
        return len(self.index_sampler)

    def __iter__(self) -> Draws:
        """Those of an epoch that begins. Those of the last still know its place, even if this one cannot begin."""
        return copy.copy(self).begin()

    def begin(self) -> Draws:
        """Some samplers draw their random numbers here, others when they are first asked."""
        self.begun_with = [randomness.read(self.generators)]
        self.share = share_of(self.sampler)
        self._seen = Seen(self.sampler)
        outer: Any = self._seen
        if self.batches:
            outer = copy.copy(self.index_sampler)
            outer.sampler = self._seen
        self._iterator = iter(outer)
        return self

    def __next__(self) -> Any:
        return self.pending.popleft()[0] if self.pending else self._draw()

    def _draw(self) -> Any:
        if len(self.begun_with) == 1:
            self.share = share_of(self.sampler)  # a framework may set the epoch after iter()
            self.begun_with.append(randomness.read(self.generators))
        self.ended = True
        keys = next(self._iterator)
        self.ended = False
        self.drawn += 1
        self.samples += len(keys) if self.auto_collation else 1
        return keys

    # ---- where it is

    def mark(self) -> Mark:
        """The place before the next keys."""
        if self.pending:
            return self.pending[0][1]
        return Mark(self.drawn, self.samples, copied_state(self.sampler), copied_state(self._seen.iterator))

    def layout(self, mark: Mark) -> dict[str, Any]:
        """The place as torchdata lays it out."""
        iter_state = self._shuffle_state(mark) if self.shuffles else mark.iter_state
        if self.batches:
            states = {"sampler_state": mark.sampler_state, "sampler_iter_state": iter_state}
            given = {name: state for name, state in states.items() if state is not None}
            states = {"_index_sampler_state": None, "_sampler_iter_state": {"samples_yielded": mark.samples, **given}}
        else:
            states = {"_index_sampler_state": mark.sampler_state, "_sampler_iter_state": iter_state}
        return {**states, "_sampler_iter_yielded": mark.drawn}

    def _shuffle_state(self, mark: Mark) -> ShuffleState:
        """With the generator that drew the permutation as it was then. One of its own was given a seed from torch's
        default generator."""
        if self.given:
            return ShuffleState(yielded=mark.samples, generator=self.given)
        states = self.begun_with[1] if len(self.begun_with) > 1 else randomness.read(self.generators)
        generator = self.sampler.generator
        if generator is None:
            default, own = torch.Generator(), torch.Generator()
            default.set_state(randomness.tensor_of(states["torch"]))
            own.manual_seed(int(torch.empty((), dtype=torch.int64).random_(generator=default).item()))
            state = randomness.state_of(own)
        else:
            number = next(number for number, each in enumerate(self.generators) if each is generator)
            state = states[f"generator {number}"]
        return ShuffleState(yielded=mark.samples, generator=b64encode(state).decode())

    # ---- go on from there

    def go_on(self, place: dict[str, Any], ours: dict[str, Any]) -> None:
        """Begin the epoch at a place: as `layout` tells it, and in `ours` what minidl adds. RuntimeError if the
        sampler ends before it."""
        begun_with = [randomness.as_bytes(states) for states in ours.get("sampler_begun_with", ())]
        sampler_state, iter_state = place["_index_sampler_state"], place["_sampler_iter_state"]
        drawn, ahead, in_flight = place["_sampler_iter_yielded"], ours.get("ahead", 0), ours.get("in_flight", ())
        samples = ours.get("samples", drawn)
        if self.batches and iter_state is not None:
            samples = iter_state["samples_yielded"]
            sampler_state, iter_state = iter_state.get("sampler_state"), iter_state.get("sampler_iter_state")
        at_the_end = ours.get("sampler_ended", False) and not ahead
        if ours.get("epoch") is not None:  # here: Lightning and accelerate set it after iter(), or to 0
            self.sampler.set_epoch(ours["epoch"])
        if sampler_state is not None:
            load = self.begin_after if not drawn or at_the_end else self.sampler.load_state_dict
            load(sampler_state)
        if begun_with:
            randomness.put_back(begun_with[0], self.generators)
        self.begin()
        if len(begun_with) > 1:
            randomness.put_back(begun_with[1], self.generators)
        self.begun_with = begun_with or self.begun_with
        replicas = self.share["replicas"]
        if ours.get("replicas", replicas) != replicas:  # those in flight then were of another share
            self._seen.iterator = iter(shared_anew(self.sampler, ours["samples"] * ours["replicas"]))
            return
        shuffled_here = self.shuffles and begun_with and not ours.get("given")
        if self.iterable or ((sampler_state, iter_state) != (None, None) and not shuffled_here):
            self.drawn, self.samples = drawn, samples
            self._find(iter_state)
            if at_the_end:
                self._iterator = iter(())
        again = self._wind(drawn - self.drawn, ahead)
        if ours.get("sampler_ended"):
            with contextlib.suppress(Exception):  # it was raised in the run that was stopped
                self._draw()
        other = ours.get("rank", self.share["rank"]) != self.share["rank"]
        if len(in_flight) < ahead:  # without order, some that were drawn later have been yielded
            if other:
                raise ValueError("the state is of another rank: without order, nothing tells what this one has yielded")
            again = again[:1] * len(in_flight)
        # Lightning gives every rank the state of the first.
        self.pending = deque((own if other else keys, mark) for keys, (mark, own) in zip(in_flight, again, strict=True))

    def _wind(self, drawn: int, ahead: int) -> list[tuple[Mark, Any]]:
        """Draw so many once more. Of those ahead of the last batch, return the keys, and the places before."""
        try:
            with winding(self.sampler, drawn):
                for _ in range(drawn):
                    self._draw()
            return [(self.mark(), self._draw()) for _ in range(ahead)]
        except StopIteration:
            raise RuntimeError(
                f"{type(self.sampler).__name__} ends after {self.drawn} batches: before the place that was loaded"
            ) from None

    def begin_after(self, sampler_state: Any) -> None:
        """Between two epochs: some samplers give the rest of one, be it nothing, to their next iterator. Others have
        begun the next by themselves."""
        self.sampler.load_state_dict(sampler_state)
        if next(iter(self.sampler), None) is not None:
            self.sampler.load_state_dict(sampler_state)

    def _find(self, iter_state: Any) -> None:
        """The sampler's iterator, at the place that its state tells."""
        if self.shuffles:  # a state of torchdata's
            generator = iter_state["generator"]
            self.given = generator if isinstance(generator, str) else b64encode(generator.numpy()).decode()
            self._seen.iterator = shuffled_from(self.sampler, self.given, iter_state["yielded"])
            self._iterator = self._iterator if self.batches else self._seen.iterator
        elif iter_state is not None:
            iter(self._seen)
            self._seen.iterator.load_state_dict(iter_state)


def copied_state(thing: Any) -> Any:
    """Some hand out what they go on changing."""
    return copy.deepcopy(thing.state_dict()) if is_stateful(thing) else None


def shuffled_from(sampler: Any, generator: str, yielded: int) -> Iterator[int]:
    """The keys of a RandomSampler from a place on: what was drawn is drawn again with its generator as it was, and at
    once, as the generator may be put back next. (Before the first key, torchdata has drawn, too.)"""
    sampler = copy.copy(sampler)
    sampler.generator = sampler.generator or torch.Generator()
    sampler.generator.set_state(randomness.tensor_of(b64decode(generator)))
    keys = iter(sampler)
    return itertools.chain(list(itertools.islice(keys, max(yielded, 1)))[yielded:], keys)


def share_of(sampler: Any) -> dict[str, Any]:
    """How many ranks share the keys of a DistributedSampler, torch's or minidl's; which of them this is; the epoch."""
    rank = getattr(sampler, "rank", None)
    if rank is None and torch.distributed.is_available() and torch.distributed.is_initialized():
        rank = torch.distributed.get_rank()
    share = {"replicas": None, "rank": rank, "epoch": None}
    if hasattr(sampler, "set_epoch"):  # others are not asked: what they call so may be something else
        share |= {"replicas": getattr(sampler, "num_replicas", None), "epoch": getattr(sampler, "epoch", None)}
    return share


def shared_anew(sampler: Any, taken: int) -> list[Any]:
    """This rank's share of the keys that are left of an epoch, of which all ranks together have taken so many. The
    shares are filled up, or cut, to the same length."""
    whole = type(sampler)(sampler.dataset, 1, 0, sampler.shuffle, sampler.seed)
    whole.set_epoch(sampler.epoch)
    order = list(whole)
    left, ranks = order[taken:], sampler.num_replicas
    if sampler.drop_last:
        left = left[: len(left) // ranks * ranks]
    left += order[: -len(left) % ranks]
    return left[sampler.rank :: ranks]


def generators_of(loader: DataLoader) -> list[torch.Generator]:
    """Those that belong to the loader, each once. The processes' own are always saved."""
    owners = loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)
    found = [getattr(owner, "generator", None) for owner in owners]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())
