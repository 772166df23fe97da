"""The first picture of docs/architecture.md: processes are big boxes, threads round ones, queues tubes. `make docs`."""

from __future__ import annotations

import itertools

from docs.make.drawing import ROUND, arrow, box, floor, picture, text, tube

HEIGHT = 692
TRACING, MAIN, WORKER, WORLD = "#e4efe4", "#e6ecf6", "#f6e9e6", "#eeeeee"


def draw() -> str:
    """The whole file. From top to bottom: what watches, what works, what all of it stands on."""
    title = "minidl: packages, processes, threads and queues"
    return picture(HEIGHT, title, *watching(), *main(), *worker(0, 146), *worker(1, 352), *queues(), *ground())


def watching() -> list[str]:
    """tracing/, and the events that it reads."""
    boxes = [
        ("events become files", "tracing/recording/"),
        ("files become states", "tracing/trace/"),
        ("what it means", "tracing/analysis/"),
        ("what it looks like", "tracing/views/"),
    ]
    parts = floor(20, 14, 960, 88, TRACING, "tracing: reads the events, and may be missing")
    for column, (name, file) in enumerate(boxes):
        parts += box(60 + 240 * column, 40, 170, 50, name, file)
    for column, _ in itertools.pairwise(range(len(boxes))):
        parts.append(arrow((230 + 240 * column, 65), (300 + 240 * column, 65)))
    parts += [arrow((145, 128), (145, 90), dashed=True), arrow((790, 146), (790, 115), (148, 115), dashed=True)]
    return [*parts, text(510, 134, "events: one for each step"), text(510, 150, "minidl/events.py", "file")]


def main() -> list[str]:
    return [
        *floor(20, 128, 400, 450, MAIN, "main: your process"),
        *box(45, 162, 160, 52, "sampler: which keys", "minidl/data/sampler.py"),
        *box(45, 256, 160, 150, "", ""),
        text(125, 280, "the iterator", "bold"),
        text(125, 298, "minidl/parallel.py", "file"),
        *(text(125, 326 + 20 * row, words) for row, words in enumerate(STEPS)),
        *box(45, 458, 160, 56, "your training loop", "for batch in loader", bold=True),
        *box(262, 226, 136, 60, "feeder threads", "minidl/queues.py", ROUND),
        *box(262, 400, 136, 76, "pin thread", "minidl/pinning.py", ROUND),
        text(330, 466, "with pin_memory", "file"),
        *(arrow((125, 214), (125, 256)), text(146, 240, "keys")),
        *(arrow((205, 276), (262, 262)), text(234, 256, "tasks")),
        *(arrow((262, 428), (205, 390)), text(268, 386, "data_queue")),
        *(arrow((125, 406), (125, 458)), text(150, 438, "batch")),
    ]


STEPS = ("hand out tasks", "take in results", "reorder buffer", "hand over in order")  # of the iterator


def worker(worker_id: int, y: int) -> list[str]:
    return [
        *floor(600, y, 380, 186 + 40 * worker_id, WORKER, f"worker {worker_id}: a process"),
        *box(622, y + 36, 130, 52, "the worker's loop", "minidl/worker.py"),
        *box(814, y + 36, 156, 52, "your dataset", "minidl/data/fetch.py", bold=True),
        *box(814, y + 118, 156, 52, "collation", "minidl/data/collate.py"),
        *box(622, y + 118, 130, 52, "feeder thread", "minidl/queues.py", ROUND),
        *(arrow((752, y + 62), (814, y + 62)), text(783, y + 55, "keys")),
        *(arrow((892, y + 88), (892, y + 118)), text(924, y + 108, "samples")),
        *(arrow((814, y + 144), (752, y + 144)), text(783, y + 137, "batch")),
    ]


def queues() -> list[str]:
    """What crosses from process to process."""
    feeders, pin = ((398, 246), (398, 266)), ((398, 424), (398, 452))
    return [
        *tube(feeders[0], (622, 200)),
        *tube(feeders[1], (622, 406)),
        *tube((622, 302), pin[0]),
        *tube((622, 508), pin[1]),
        text(488, 206, "index_queue 0"),
        text(496, 272, "index_queue 1"),
        text(522, 430, "worker_result_queue:"),
        text(522, 446, "a pipe for each worker"),
        *box(412, 529, 196, 46, "slots: the tensors, shared", "minidl/transport/"),
    ]


def ground() -> list[str]:
    parts = floor(20, 592, 960, 88, WORLD, "minidl/world: all that is asked of the operating system, on one page")
    parts += box(60, 620, 400, 50, "real: multiprocessing, threading, torch's pickler", "minidl/world/real.py")
    return parts + box(500, 620, 440, 50, "simulated: one thread, virtual time, any order", "minidl/world/simulated/")
