"""The program that the demo runs: a real load on this machine.

The data: the source files of the Python that runs this, some 1,500 files of 0 bytes to hundreds of kilobytes.
The work: a worker reads a file and tokenises all of it, which takes from microseconds to half a second, so
batches really finish out of order. The model predicts from the bytes around it what each byte belongs to (a name, a
string, a comment, ...), which is what an editor needs to colour code. It learns on the CPU, in seconds.

This is a user's program: it takes the loader from minidl, and nothing in it knows that it is recorded.

Legend
    source   uint8 (1024,)    bytes of one file: a window cut at random, padded with zeros
    classes  int64 (1024,)    which kind of token each byte belongs to; PADDING after the file's end
"""

from __future__ import annotations

import contextlib
import io
import os
import platform
import sys
import time
import tokenize
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import minidl

WINDOW = 1024  # bytes of a file that the model sees
BATCH_SIZE = 8  # files
WORKERS = 2
SECONDS = 25.0  # then it stops, whether or not the epoch is over
CLASSES = len(tokenize.tok_name)  # Python's own kinds of token: a name, a number, a string, an operator, ...
PADDING = -100  # a class that cross_entropy ignores


# ---- the data


def find_sources() -> list[Path]:
    """The Python files of the standard library, sorted by name; without installed packages."""
    found = []
    for folder, folders, files in os.walk(Path(os.__file__).parent):
        folders[:] = [name for name in folders if name not in ("site-packages", "dist-packages", "__pycache__")]
        found += [Path(folder, name) for name in files if name.endswith(".py")]
    return sorted(path for path in found if os.access(path, os.R_OK))


def classify(source: bytes) -> bytearray:
    """What each byte of a Python file belongs to: for each the number of a kind of token, 0 for space."""
    classes = bytearray(len(source))
    lines = list(io.StringIO(source.decode("latin-1")))  # a character a byte, so columns count bytes
    starts = [0]  # of each line
    for line in lines:
        starts.append(starts[-1] + len(line))
    try:
        for token in tokenize.generate_tokens(iter(lines).__next__):
            # The last tokens are after the last line: a slice must not reach beyond the file.
            begin, end = (min(starts[min(row, len(lines) + 1) - 1] + column, len(source)) for row, column in token[2:4])
            classes[begin:end] = bytes([token.type]) * (end - begin)
    except (tokenize.TokenError, SyntaxError):
        pass  # some of the library's test files are wrong on purpose: what comes after the error stays a space
    return classes


class SourceFiles(minidl.Dataset):
    """One sample per file: a window of its bytes, and what they belong to."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """{"source": uint8 (WINDOW,), "classes": int64 (WINDOW,)}"""
        data = self.paths[index].read_bytes()
        classes = classify(data)
        first = int(torch.randint(max(1, len(data) - WINDOW + 1), ()))
        size = min(WINDOW, len(data))
        sample = {"source": torch.zeros(WINDOW, dtype=torch.uint8), "classes": torch.full((WINDOW,), PADDING)}
        if size:  # some files are empty
            window = slice(first, first + size)
            sample["source"][:size] = torch.frombuffer(bytearray(data[window]), dtype=torch.uint8)
            sample["classes"][:size] = torch.frombuffer(classes[window], dtype=torch.uint8)
        return sample


# ---- the model


class Colourer(nn.Module):
    """Bytes (batch, WINDOW) -> a score for each class, (batch, CLASSES, WINDOW)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.layers = nn.Sequential(
            nn.Conv1d(width, width, 9, padding=4),
            nn.GELU(),
            nn.Conv1d(width, width, 9, padding=16, dilation=4),  # sees 41 bytes
            nn.GELU(),
            nn.Conv1d(width, CLASSES, 1),
        )

    def forward(self, source: Tensor) -> Tensor:
        return self.layers(self.embedding(source.int()).transpose(1, 2))


def train(loader: minidl.DataLoader[Any], seconds: float) -> Generator[float, None, None]:
    """Train for an epoch, or this many seconds; yield the loss of each batch."""
    torch.set_num_threads(1)  # the workers need the cores too
    torch.manual_seed(0)
    model = Colourer()
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    deadline = time.monotonic() + seconds
    for batch in loader:
        source, classes = batch["source"], batch["classes"]
        there = (classes != PADDING).sum().clamp(min=1)  # bytes; a batch of empty files has none
        scores = model(source)
        loss = nn.functional.cross_entropy(scores, classes, ignore_index=PADDING, reduction="sum") / there
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        yield loss.item()
        if time.monotonic() > deadline:
            return


# ---- the program


def main(files: int | None) -> None:
    """Load and train. files: how many to load, the first ones. Exits with 130 after Ctrl-C."""
    paths = find_sources()[:files]
    size = sum(path.stat().st_size for path in paths)
    what = f"{len(paths):,} source files of Python {platform.python_version()} ({size / 1e6:.1f} MB)"
    print(f"Loading {what}, with {WORKERS} worker processes,")
    print("and training a model to tell names from numbers, strings and comments.", flush=True)
    loader: minidl.DataLoader[Any] = minidl.DataLoader(
        SourceFiles(paths), BATCH_SIZE, shuffle=True, num_workers=WORKERS
    )
    begin = printed = time.monotonic()
    done, status = 0, 0
    try:
        with contextlib.closing(train(loader, SECONDS)) as steps:  # after Ctrl-C: the loader is shut down here and now
            for done, loss in enumerate(steps, start=1):
                now = time.monotonic()
                if now - printed >= 2 or done in (1, len(loader)):
                    printed = now
                    print(f"{now - begin:5.1f} s   batch {done:3} of {len(loader)}   loss {loss:.3f}", flush=True)
    except KeyboardInterrupt:
        status = 130
    print(f"\nTrained on {done} of {len(loader)} batches{', interrupted' if status else ''}.", flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else None)
