"""`accelerator`: torch.accelerator; where torch is older than 2.6 and has none, what a loader needs of it, for CUDA."""

from __future__ import annotations

from typing import Any

import torch


class CudaOnly:
    """The accelerator of torch 2.4 and 2.5."""

    is_available = staticmethod(torch.cuda.is_available)
    current_device_index = staticmethod(torch.cuda.current_device)
    set_device_index = staticmethod(torch.cuda.set_device)

    @staticmethod
    def current_accelerator() -> torch.device:
        return torch.device("cuda")


accelerator: Any = getattr(torch, "accelerator", CudaOnly)
