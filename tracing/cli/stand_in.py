"""`tracing run --minidl`: a script gets minidl's DataLoader where it asks for torch's."""

from __future__ import annotations

import sys

import torch.utils.data

import minidl


def minidl_stands_in() -> None:
    """torch.utils.data.DataLoader is minidl's, by whichever name a program imports it from now on."""
    words = "--minidl: minidl's DataLoader stands in for torch.utils.data's in this process, and not in its children"
    print(f"tracing: {words}", file=sys.stderr, flush=True)
    for home in (torch.utils.data, torch.utils.data.dataloader):
        vars(home).update(DataLoader=minidl.DataLoader)
