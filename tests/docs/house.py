"""The picture of docs/architecture.md: processes as big boxes, threads as round ones, queues as tubes. `make docs`, or

python -m tests.docs.house docs/pictures/architecture.svg
"""

from __future__ import annotations

import itertools
import sys
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 1000, 664
INK, FAINT, TUBE, PLAIN = "#222222", "#6a6a6a", "#f3d9a4", "#ffffff"
FLOORS = {"tracing": "#e4efe4", "main": "#e6ecf6", "worker": "#f6e9e6", "world": "#eeeeee"}
ROUND, SQUARE = 18, 4  # corners: of a thread, of anything else
STYLE = """<style>
text { font-family: Helvetica, Arial, sans-serif; font-size: 13px; fill: #222222; text-anchor: middle }
.title { font-weight: bold; text-anchor: start }
.bold { font-weight: bold }
.file { font-family: Menlo, Consolas, monospace; font-size: 11px; fill: #6a6a6a }
</style>"""
ARROWHEAD = f"""<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"
 orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>"""


def draw() -> str:
    """The whole file. From top to bottom: who watches, who works, what all of it stands on."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        "<title>minidl: packages, processes, threads and queues</title>",
        STYLE,
        ARROWHEAD,
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PLAIN}"/>',
        *watching(),
        *main(),
        *worker(0, 146),
        *worker(1, 352),
        *queues(),
        *ground(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def watching() -> list[str]:
    """tracing/, and the events that it reads."""
    boxes = [(60, 150, "recorder", "tracing/recording/event_writer.py"), (290, 150, "a trace: files", "one a process")]
    boxes += [
        (520, 170, "state after any event", "tracing/trace/state.py"),
        (770, 180, "views, report, checks", "tracing/views/"),
    ]
    parts = floor(20, 14, 960, 88, "tracing", "tracing: reads what the loader says, and may be missing")
    for x, width, name, file in boxes:
        parts += box(x, 40, width, 50, name, file)
    for (x, width, *_), (after, *_) in itertools.pairwise(boxes):
        parts.append(arrow((x + width, 65), (after, 65)))
    parts += [arrow((220, 128), (220, 102), dashed=True), arrow((790, 146), (790, 102), dashed=True)]
    parts += [text(505, 122, "events: every step is told"), text(505, 138, "minidl/events.py", "file")]
    return parts


def main() -> list[str]:
    return [
        *floor(20, 128, 400, 420, "main", "main: your process"),
        *box(45, 162, 160, 52, "sampler: which keys", "minidl/data/sampler.py"),
        *box(45, 256, 160, 150, "", ""),
        text(125, 280, "the iterator", "bold"),
        text(125, 298, "minidl/parallel.py", "file"),
        text(125, 326, "hand out tasks"),
        text(125, 346, "take in results"),
        text(125, 366, "reorder buffer"),
        text(125, 386, "hand over in order"),
        *box(45, 458, 160, 56, "your training loop", "for batch in loader", bold=True),
        *box(262, 226, 136, 60, "feeder threads", "minidl/queues.py", ROUND),
        *box(262, 400, 136, 76, "pin thread", "minidl/pinning.py", ROUND),
        text(330, 466, "with pin_memory", "file"),
        arrow((125, 214), (125, 256), "keys", (146, 240)),
        arrow((205, 276), (262, 262), "tasks", (234, 256)),
        arrow((262, 428), (205, 390), "", (0, 0)),
        text(268, 386, "data_queue"),
        arrow((125, 406), (125, 458), "batch", (150, 438)),
    ]


def worker(worker_id: int, y: int) -> list[str]:
    return [
        *floor(600, y, 380, 186, "worker", f"worker {worker_id}: a process"),
        *box(622, y + 36, 130, 52, "the worker's loop", "minidl/worker.py"),
        *box(814, y + 36, 156, 52, "your dataset", "minidl/data/fetch.py", bold=True),
        *box(814, y + 118, 156, 52, "collation", "minidl/data/collate.py"),
        *box(622, y + 118, 130, 52, "feeder thread", "minidl/queues.py", ROUND),
        arrow((752, y + 62), (814, y + 62), "keys", (783, y + 55)),
        arrow((892, y + 88), (892, y + 118), "samples", (924, y + 108)),
        arrow((814, y + 144), (752, y + 144), "batch", (783, y + 137)),
    ]


def queues() -> list[str]:
    """What crosses from process to process."""
    feeders, pin = ((398, 246), (398, 266)), ((398, 424), (398, 452))
    return [
        *tube(feeders[0], (622, 200)),
        *tube(feeders[1], (622, 406)),
        *tube((622, 302), pin[0]),
        *tube((622, 508), pin[1]),
        text(500, 212, "index_queue 0"),
        text(520, 306, "index_queue 1"),
        text(510, 512, "worker_result_queue:"),
        text(510, 528, "a pipe a worker"),
    ]


def ground() -> list[str]:
    parts = floor(20, 562, 960, 88, "world", "minidl/world: all that is asked of the operating system, on one page")
    parts += box(60, 590, 400, 50, "real: multiprocessing, threading, torch's pickler", "minidl/world/real.py")
    parts += box(500, 590, 440, 50, "simulated: one thread, a virtual clock, every order", "minidl/world/simulated/")
    return parts


# ---- shapes


def floor(x: int, y: int, width: int, height: int, kind: str, title: str) -> list[str]:
    return [rectangle(x, y, width, height, FLOORS[kind], 6), text(x + 14, y + 20, title, "title")]


def box(
    x: int, y: int, width: int, height: int, name: str, file: str, corner: int = SQUARE, bold: bool = False
) -> list[str]:
    middle = x + width // 2
    names = [text(middle, y + 22, name, "bold" if bold else "plain"), text(middle, y + 40, file, "file")]
    return [rectangle(x, y, width, height, PLAIN, corner, FAINT), *(names if name else [])]


def rectangle(x: int, y: int, width: int, height: int, fill: str, corner: int, line: str = "none") -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{corner}" fill="{fill}" stroke="{line}"/>'


def text(x: int, y: int, words: str, kind: str = "plain") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def arrow(
    begin: tuple[int, int], end: tuple[int, int], label: str = "", at: tuple[int, int] = (0, 0), dashed: bool = False
) -> str:
    dashes = ' stroke-dasharray="4 4"' if dashed else ""
    way = f"M{begin[0]} {begin[1]} L{end[0]} {end[1]}"
    line = f'<path d="{way}" fill="none" stroke="{INK}"{dashes} marker-end="url(#head)"/>'
    return line + (text(*at, label) if label else "")


def tube(begin: tuple[int, int], end: tuple[int, int]) -> list[str]:
    """A pipe between two processes, with the arrow in it."""
    wide = f'<path d="M{begin[0]} {begin[1]} L{end[0]} {end[1]}" stroke="{TUBE}" stroke-width="14" fill="none"/>'
    return [wide, arrow(begin, end)]


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures/architecture.svg").write_text(draw(), encoding="utf-8")
