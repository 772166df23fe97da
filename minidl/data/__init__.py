"""What is loaded: datasets, samplers, fetchers, collation. Knows nothing of processes or queues.

sampler -> keys -> fetcher(dataset) -> samples -> collate_fn -> batch

The function `collate` is not among these names: `minidl.data.collate` is the module that holds it.
"""

from minidl.data.collate import default_collate, default_collate_fn_map, default_convert
from minidl.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from minidl.data.distributed import DistributedSampler
from minidl.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_collate_fn_map",
    "default_convert",
    "random_split",
]
