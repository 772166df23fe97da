"""DistributedSampler against torch's, rank by rank, and what the ranks have together."""

from __future__ import annotations

import pytest
import torch.distributed as dist
import torch.utils.data as theirs
from hypothesis import given, settings
from hypothesis import strategies as st

import minidl as ours
from tests.ids import plain

ATTRIBUTES = ("num_replicas", "rank", "epoch", "drop_last", "num_samples", "total_size", "shuffle", "seed")
each_drop_last = pytest.mark.parametrize("drop_last", [False, True])


@given(
    n=st.integers(0, 30),
    replicas=st.sampled_from([1, 2, 3, 4, 8, 0, None]),
    rank=st.sampled_from([0, 1, 2, 7, -1, None]),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    now=st.integers(0, 30),
)
@settings(max_examples=250)
def test_every_rank_has_the_keys_it_has_in_torch(same, n, replicas, rank, shuffle, drop_last, now):
    """Also when the dataset has changed its length: it has `now` samples in the end."""

    def run(data):
        source = list(range(n))
        sampler = data.DistributedSampler(source, replicas, rank, shuffle, seed=3, drop_last=drop_last)
        begun, first = iter(sampler), list(sampler)
        sampler.set_epoch(4)
        # What was begun before has its keys already.
        shown = first, list(begun), list(sampler), len(sampler), [getattr(sampler, name) for name in ATTRIBUTES]
        source[:] = range(now)
        return shown, list(sampler) if n > 0 else None

    same(run, ours, theirs)


@pytest.mark.parametrize("missing", [{"num_replicas": 2}, {"rank": 0}, {}], ids=plain)
def test_without_the_distributed_package_defaults_are_refused(same, monkeypatch, missing):
    monkeypatch.setattr(dist, "is_available", lambda: False)
    shown = same(lambda data: data.DistributedSampler(range(4), **missing), ours, theirs)
    assert shown["error"][0] is RuntimeError
    same(lambda data: list(data.DistributedSampler(range(4), num_replicas=2, rank=1)), ours, theirs)


def test_replicas_and_rank_come_from_the_process_group(tmp_path):
    if not dist.is_available():
        pytest.skip("torch was built without its distributed package")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", world_size=1, rank=0)
    try:
        sampler = ours.DistributedSampler(range(5))
        assert (sampler.num_replicas, sampler.rank, len(sampler)) == (1, 0, 5)
    finally:
        dist.destroy_process_group()
