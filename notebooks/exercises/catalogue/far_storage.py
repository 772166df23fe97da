"""Exercise 17, examined: the storage and the training step are in the judge's process, at the other end of a socket in
the answer's folder. So are the clock and what the recordings hold, which is new at each read.

    {"read": "017.json"}                      what the file holds, after LATENCY
    {"step": [ids, labels, values in hex]}    a step has been taken

Time is counted in waits, one after the other, of a thread beside it: what slows down the machine slows down both. The
script that is handed out waits twice for each sample, and starts a worker for each epoch: more than 600 times in all.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np

from notebooks.exercises.catalogue.slow_script import BATCH_SIZE, CHANNELS, EPOCHS, LATENCY, LENGTH, RECORDINGS

SAMPLES = EPOCHS * RECORDINGS
MOST_WAITS = SAMPLES * 6 // 5  # one for each, and some time for the rest
MOST_REQUESTS = 16 * SAMPLES  # the script that is handed out makes three for each sample
LONGEST = 1 << 17  # bytes of a request


class Storage(socketserver.ThreadingUnixStreamServer):
    daemon_threads, block_on_close, request_queue_size = True, False, 256

    def __init__(self, path: Path, beat: Callable[[], None]) -> None:
        super().__init__(str(path), _Request)
        self.beat, self.draw = beat, np.random.default_rng()
        self.offsets, self.scales = self.draw.random(CHANNELS), 1 + self.draw.random(CHANNELS)
        self.labels: list[int] = self.draw.integers(2, size=RECORDINGS).tolist()
        self.unused: dict[str, list[Any]] = {f"{k:03}.json": [] for k in range(RECORDINGS)}  # what was read
        self.steps: list[tuple[list[int], list[int], Any]] = []  # ids, labels, values
        self.requests = self.waits = 0

    def verify_request(self, *_: Any) -> bool:
        """Whether it is answered."""
        self.requests += 1
        if self.requests == 1:
            threading.Thread(target=self._count, daemon=True).start()
        return self.requests <= MOST_REQUESTS and self.waits <= MOST_WAITS

    def handle_error(self, *_: Any) -> None:
        """A request that cannot be read is not answered, either."""

    def _count(self) -> None:
        while len(self.steps) * BATCH_SIZE < SAMPLES and self.waits <= MOST_WAITS:
            sleep(LATENCY)
            self.waits += 1

    def read(self, name: str) -> Any:
        if name == "labels.json":
            found: Any = self.labels
        elif name == "calibration.json":
            found = {"offsets": self.offsets.tolist(), "scales": self.scales.tolist()}
        else:
            values = self.draw.normal(size=(CHANNELS, LENGTH)).round(3)
            self.unused[name].append((values - self.offsets[:, None]) / self.scales[:, None])
            found = values.tolist()
        sleep(LATENCY)
        return found

    def step(self, ids: list[int], labels: list[int], values: str) -> None:
        rows = np.frombuffer(bytes.fromhex(values), np.float32)
        self.steps.append(([int(each) for each in ids], [int(each) for each in labels], rows))
        self.beat()

    def judged(self, got: Any) -> tuple[str, str] | None:
        """What is wrong with what it was asked."""
        if got is not None or self.waits > MOST_WAITS:
            late = f"{len(self.steps)} steps after {self.waits} waits for the storage, one after the other"
            return f"{got}; {late}", f"{SAMPLES // BATCH_SIZE} steps within {MOST_WAITS}"
        order: list[int] = []
        for k, (ids, labels, values) in enumerate(self.steps):
            if not len(ids) == len(labels) == BATCH_SIZE or values.size != BATCH_SIZE * CHANNELS * LENGTH:
                return f"step {k}: {len(ids)} ids, {len(labels)} labels, {values.nbytes} bytes", "batches as before"
            for number, label, row in zip(ids, labels, values.reshape(BATCH_SIZE, -1), strict=True):
                unused = self.unused.get(f"{number:03}.json", [])
                found = [at for at, each in enumerate(unused) if np.allclose(each.ravel(), row, 1e-4, 1e-4)]
                if not found or label != self.labels[number]:
                    got = f"step {k}: recording {number} with other values, or another label, than were read for it"
                    return got, "what a read() of its own has returned: here it is new each time"
                del unused[found[0]]
            order += ids
        epochs = [order[k : k + RECORDINGS] for k in range(0, len(order), RECORDINGS)]
        if [sorted(each) for each in epochs] != [[*range(RECORDINGS)]] * EPOCHS:
            return f"the recordings {order}", f"{EPOCHS} epochs with each recording once"
        alike = orders_alike(epochs)
        return None if alike is None else (alike, "an order drawn anew for each epoch")


def orders_alike(epochs: list[list[int]]) -> str | None:
    """Two epochs, or an epoch and the files, of whose batches or neighbours at least half are the same. Of orders that
    are drawn, hardly any are."""
    orders = {"the files": [*range(RECORDINGS)]} | {f"epoch {k}": order for k, order in enumerate(epochs)}
    for (one, first), (other, second) in itertools.combinations(orders.items(), 2):
        batches, neighbours = (
            [{frozenset(order[k : k + size]) for k in range(0, len(order) - size + 1, by)} for order in (first, second)]
            for size, by in ((BATCH_SIZE, BATCH_SIZE), (2, 1))
        )
        if 2 * len(same := batches[0] & batches[1]) >= len(batches[0]):
            return f"{one} and {other} have the same batches, as {sorted(min(same, key=min))}"
        if 2 * len(neighbours[0] & neighbours[1]) > RECORDINGS:
            return f"{one} and {other} are nearly in the same order: {first[:6]}, ... and {second[:6]}, ..."
    return None


class _Request(socketserver.StreamRequestHandler):
    timeout = 5.0

    def handle(self) -> None:
        (what, given), *_ = json.loads(self.rfile.readline(LONGEST)).items()
        storage: Any = self.server
        reply = storage.read(given) if what == "read" else storage.step(*given)
        self.wfile.write(json.dumps(reply).encode() + b"\n")


@contextlib.contextmanager
def served(folder: Path, beat: Callable[[], None]) -> Iterator[Callable[[Any], tuple[str, str] | None]]:
    """Serve it in this folder. Yields the judge of what has been asked."""
    with Storage(folder / "storage", beat) as storage:
        threading.Thread(target=storage.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield storage.judged
        finally:
            storage.shutdown()
