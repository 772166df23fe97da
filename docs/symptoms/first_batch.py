"""The first batch of every epoch is slow

Every epoch starts new workers, and each has to get ready: import libraries, open a database, build an index. The cure
is persistent_workers=True: they get ready once.
"""

import sys
import time

from torch.utils.data import DataLoader


def open_database(worker_id: int) -> None:
    time.sleep(0.5)


if __name__ == "__main__":
    loader = DataLoader(
        range(40), batch_size=4, num_workers=2, worker_init_fn=open_database, persistent_workers="cured" in sys.argv
    )
    for epoch in range(3):
        begin = time.monotonic()
        iterator = iter(loader)
        next(iterator)
        print(f"epoch {epoch}: first batch after {time.monotonic() - begin:.1f} s")
        for _batch in iterator:
            time.sleep(0.002)
