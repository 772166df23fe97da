"""The program stops in the middle of an epoch

In a worker, collate_fn waits for a lock that the worker holds already: a word that is not known is added by a function
that takes the lock again. Main waits for the worker for ever; here you press Ctrl-C after two and a half seconds. The
cure is a lock that its holder can take again.
"""

import os
import signal
import sys
import threading

from torch.utils.data import DataLoader

lock = threading.RLock() if "cured" in sys.argv else threading.Lock()
known = {f"word {n}": n for n in range(16)}


def add(word: str) -> int:
    with lock:
        return known.setdefault(word, len(known))


def collate(words: list[str]) -> list[int]:
    with lock:
        return [known[word] if word in known else add(word) for word in words]


if __name__ == "__main__":
    timer = threading.Timer(2.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    words = [f"word {n}" for n in range(40)]
    batches = list(DataLoader(words, batch_size=4, num_workers=1, collate_fn=collate))  # type: ignore[arg-type]
    timer.cancel()
    print(f"{len(batches)} batches")
