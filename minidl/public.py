"""The public names: those of `torch.utils.data`. Import them from `minidl`."""

# A worker of minidl's knows what torch's know; and torch lists _DatasetKind among its public names.
from torch.utils.data import _DatasetKind, get_worker_info

from minidl.data.collate import default_collate, default_convert
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
from minidl.loader import DataLoader

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset",
    "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset",
    "WeightedRandomSampler", "_DatasetKind", "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip
