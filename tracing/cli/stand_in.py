"""`tracing run --minidl`: a script gets minidl's DataLoader where it asks for torch's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch.utils.data

import minidl


@contextlib.contextmanager
def minidl_stands_in() -> Iterator[None]:
    """Within it torch.utils.data.DataLoader is minidl's, by whichever name a program imports it from now on."""

    words = "--minidl: minidl's DataLoader stands in for torch.utils.data's in this process, and not in its children"
    print(f"tracing: {words}", file=sys.stderr, flush=True)
    homes, before = (torch.utils.data, torch.utils.data.dataloader), torch.utils.data.DataLoader
    for home in homes:
        vars(home).update(DataLoader=minidl.DataLoader)
    try:
        yield
    finally:
        for home in homes:
            vars(home).update(DataLoader=before)
