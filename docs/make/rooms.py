"""The rooms of tracing/ in docs/architecture.md: a picture of a trace on its way through them. `make docs`."""

from __future__ import annotations

from docs.make.drawing import FAINT, SQUARE, TUBE, Point, arrow, box, floor, picture, rectangle, text

HEIGHT = 890
COLOURS = {
    "recording": "#e6ecf6", "trace": "#e4efe4", "analysis": "#f6e9e6", "views": "#efe8f5", "ranks": "#f5f0dc",
    "cli": "#eeeeee",
}  # fmt: skip
FILES = "a directory; each process writes a pair of files of its own, which outlive it"

# Room -> its boxes from left to right: what it does, and the file (or folder) of the room that does it.
BOXES = {
    "recording": [
        ("torch's steps as events", "torch_loader/"),
        ("events become files", "event_writer.py"),
        ("start and stop", "record.py"),
        ("samples the process", "watch.py"),
        ("a simulated run's files", "simulated_run.py"),
    ],
    "trace": [
        ("a pair of files", "file_reader.py"),
        ("events in order", "trace.py"),
        ("a row per batch", "tasks.py"),
        ("state after event k", "state.py"),
        ("what threads do", "thread_activity.py"),
    ],
    "analysis": [
        ("where time went", "measure/"),
        ("what limits it", "report/"),
        ("with other options", "whatif/"),
        ("is a rule broken?", "check.py"),
        ("why it hangs", "hang/"),
        ("two runs compared", "compare.py"),
    ],
    "views": [
        ("a lane per thread", "timeline/"),
        ("while it runs", "live/"),
        ("who sent what", "sequence/"),
        ("event by event", "step_through/"),
        ("for other programs", "export/"),
        ("layout and keys", "terminal/"),
    ],
    "ranks": [
        ("whose loader is which", "ranks.py"),
        ("steps, side by side", "steps.py"),
        ("does all get loaded?", "check.py"),
        ("a table of ranks", "report.py"),
        ("one picture of all", "timeline.py"),
    ],
    "cli": [
        ("what each command does", "commands/"),
        ("their arguments", "arguments.py"),
        ("runs your script", "run_script.py"),
        ("lends the terminal", "terminal_handover.py"),
        ("the demo's training", "demo_training.py"),
    ],
}
WIDE, GAP = 172, 20  # px: a box where five are in a row, and from one to the next
LEFT = [30 + (WIDE + GAP) * column for column in range(5)]
CENTRE = [x + WIDE // 2 for x in LEFT]


def draw() -> str:
    """The whole file, from the loaders at the top to the command line at the bottom."""
    title = "tracing: a trace flows from recording through trace, analysis, views and ranks to the command line"
    return picture(HEIGHT, title, *sources(), *recording(), *trace(), *analysis_and_views(), *ranks(), *cli())


def sources() -> list[str]:
    """What is recorded, and what comes of it: each above the box that takes it."""
    boxes = [
        ("torch's DataLoader", "torch.utils.data", "its steps"),
        ("minidl's DataLoader", "minidl/events.py", "events"),
        ("your program", "tracing.record(path)", "start, stop"),
        ("the operating system", "/proc", "bytes"),
        ("a simulated run", "minidl/world/simulated/", "events"),
    ]
    parts = []
    for x, centre, (name, file, what) in zip(LEFT, CENTRE, boxes, strict=True):
        parts += [*box(x, 14, WIDE, 50, name, file), *flow((centre, 64), (centre, 104), what)]
    return parts


def recording() -> list[str]:
    parts = [*room("recording", 20, 104, 960, "recording: steps become files"), *row("recording", 132)]
    parts.append(arrow((LEFT[0] + WIDE, 157), (LEFT[1], 157)))
    starts = [((LEFT[2], 157), (LEFT[1] + WIDE, 157)), ((LEFT[2] + WIDE, 157), (LEFT[3], 157))]
    parts += [arrow(*way, dashed=True) for way in starts]
    parts += [rectangle(LEFT[0], 224, LEFT[4] + WIDE - LEFT[0], 48, TUBE, SQUARE)]
    parts += [text(500, 243, FILES), text(500, 261, "run.trace/", "file")]
    return parts + [arrow((CENTRE[column], 182), (CENTRE[column], 224)) for column in (1, 3, 4)]


def trace() -> list[str]:
    """The reader and the order of time; in a frame what is computed from the events once it is asked for."""
    wide, step, y = 134, 159, 338
    frame = 32 + 2 * step - 10
    parts = [*flow((500, 272), (500, 310), "files, finished or still growing")]
    parts += room("trace", 20, 310, 960, "trace: what happened?", 96)
    for column, (name, file) in enumerate(BOXES["trace"]):
        parts += box(32 + step * column, y, wide, 50, name, file)
    parts += [arrow((32 + wide, y + 25), (32 + step, y + 25)), arrow((32 + step + wide, y + 25), (frame, y + 25))]
    return [*parts, rectangle(frame, y - 9, wide + 3 * step + 20, 68, "none", 6, FAINT)]


def analysis_and_views() -> list[str]:
    parts = room("analysis", 20, 452, 450, "analysis: what does it mean?", 156)
    parts += room("views", 530, 452, 450, "views: what does it look like?", 156)
    for name, left in (("analysis", 32), ("views", 542)):
        for number, (what, file) in enumerate(BOXES[name]):
            parts += box(left + 144 * (number % 3), 480 + 62 * (number // 3), 138, 50, what, file)
    parts += [arrow((245, 406), (245, 452)), arrow((755, 406), (755, 452))]
    parts += [text(500, 434, "trace.events, .tasks, .state(k), .samples, .stacks")]
    return [*parts, arrow((470, 536), (530, 536)), text(500, 528, "verdict"), text(500, 554, "hang")]


def ranks() -> list[str]:
    parts = flow((245, 608), (245, 650), "numbers, verdicts, violations")
    parts += flow((755, 608), (755, 650), "pictures, pages, text, exports")
    return [*parts, *room("ranks", 20, 650, 960, "ranks: what do several show together?"), *row("ranks", 678)]


def cli() -> list[str]:
    parts = flow((500, 742), (500, 784), "of one process, or of all")
    return [*parts, *room("cli", 20, 784, 960, "cli: python -m tracing COMMAND"), *row("cli", 812)]


# ---- what rooms have in common


def room(name: str, x: int, y: int, width: int, title: str, height: int = 92) -> list[str]:
    return floor(x, y, width, height, COLOURS[name], title)


def row(name: str, y: int) -> list[str]:
    """The boxes of a room that has five."""
    return [part for x, (what, file) in zip(LEFT, BOXES[name], strict=True) for part in box(x, y, WIDE, 50, what, file)]


def flow(begin: Point, end: Point, what: str) -> list[str]:
    """An arrow down, and beside it what flows there."""
    return [arrow(begin, end), text(begin[0] + 8, (begin[1] + end[1]) // 2 + 4, what, "beside")]


# ---- the tables
