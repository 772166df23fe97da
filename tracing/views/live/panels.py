"""One state of a loader as a picture for the terminal. Clocks, keys and files are left to live and playback.

A batch's path reads like a page, left to right and then on the next line:

    index_queue  ▸  worker  ▸  worker_result_queue         a row for each worker
    pin thread   ▸  data_queue  ▸  reorder buffer  ▸  main

In a queue, what is taken next is at the right, nearest to the thread that takes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracing.trace.state import LoaderState, MainStatus, PinStatus, State, WorkerState, WorkerStatus
from tracing.trace.words import duration
from tracing.views.live.event_lines import event_line
from tracing.views.live.recent import Recent, choose, strip_of
from tracing.views.terminal.batch_cells import cell, row_of_cells, strip
from tracing.views.terminal.layout import (
    BAD,
    BOLD,
    DIM,
    GOOD,
    PLAIN,
    WAITS,
    Frame,
    Line,
    Style,
    beside,
    box,
    ends,
    fit,
    length,
    text,
)

STYLES = {
    WorkerStatus.FETCHING: GOOD,
    WorkerStatus.COLLATING: GOOD,
    WorkerStatus.SENDING: GOOD,
    WorkerStatus.WAITING: WAITS,
    WorkerStatus.DEAD: BAD,
    PinStatus.PINNING: GOOD,
    MainStatus.TRAINING: GOOD,
    MainStatus.WAITING: WAITS,
    MainStatus.RAISED: BAD,
}
NUMBERS_WIDTH = 30
PASSES_HEIGHT = 5  # the second row of boxes


@dataclass
class Moment:
    """Everything that a frame is made of, except the size of the terminal."""

    state: State
    recent: Recent
    title: str = ""
    mode: str = ""
    keys: str = ""
    help: bool = False


def render(moment: Moment, width: int, height: int) -> Frame:
    """The loader that `moment.recent` is about, in `width` columns and at most `height` lines.

    Title and mode go to the two ends of the first line, keys to the end of the last. A hang adds a line.
    """
    recent, loader = moment.recent, choose(moment.state, moment.recent.loader)
    alarm = [fit([text(f" ▸ {line} ", BAD)], width) for line in recent.stuck[:1]]
    room = max(0, height - 2 - len(alarm))
    if moment.help:
        body = box("what you see", HELP, width, room)
    elif loader is None:
        body = box("no loader yet", [[text(" It appears here when it is first iterated.")]], width, room)
    else:
        body = _body(loader, recent, width, room)
    mode = text(f" {moment.mode}  {recent.seconds:.1f} s ", BOLD)
    first = ends([text(f" {moment.title} ", BOLD), *_about(moment.state, loader)], [mode], width)
    last = ends(_below(recent, loader), [text(f" {moment.keys}", DIM)], width)
    return Frame([first, *body, *alarm, last][:height], width)


def plain(state: State, recent: Recent, so_far: str = "") -> str:
    """The same in one line, for output outside a terminal. so_far: main's time until now, in words; then the line is
    about that, not about this moment."""
    loader = choose(state, recent.loader)
    if loader is None:
        return "; ".join([f"{recent.seconds:.1f} s: no loader has begun yet", *recent.stuck])
    parts = [f"{recent.seconds:.1f} s: loader {loader.loader}, epoch {loader.epoch}"]
    if so_far:
        return "; ".join([*parts, f"{loader.yielded} batches yielded; main's time: {so_far}", *recent.stuck])
    parts.append(f"{loader.yielded} batches yielded, {recent.batches_per_second:.1f} a second")
    parts.append(f"main {loader.main.status.value}, in the loader {recent.in_loader:.0%} {recent.of_window}")
    return "; ".join([*parts, *(recent.stuck or filter(None, [recent.limit]))])


def _about(state: State, loader: LoaderState | None) -> Line:
    if loader is None:
        return []
    count = loader.num_workers
    parts = [f"loader {loader.loader}", f"epoch {loader.epoch}"]
    parts.append(f"{count} worker{'s' * (count > 1)}" if count else "no workers")
    if count and "prefetch_factor" in loader.config:
        parts.append(f"prefetch {loader.config['prefetch_factor']}")
    if loader.error is not None:
        parts.insert(0, f"raised {loader.error}")
    others = [f"loader {other.loader}" for other in state.loaders if other is not loader]
    if others:
        parts.append("also: " + ", ".join(others))
    return [text(" · ".join(parts), BAD if loader.error is not None else PLAIN)]


def _below(recent: Recent, loader: LoaderState | None) -> Line:
    if recent.stuck:
        return [text(f"   {recent.stuck[1]} ", BOLD)]
    if loader is None:
        return []
    limit = f"{recent.limit} · " * bool(recent.limit)
    return [text(f" ▸ {limit}main in the loader {recent.in_loader:.0%} {recent.of_window} ", BOLD)]


def _body(loader: LoaderState, recent: Recent, width: int, height: int) -> list[Line]:
    lines = _workers(loader, recent, width, height - PASSES_HEIGHT + 1) if loader.workers else []
    left = height - len(lines)
    passes = left if left < PASSES_HEIGHT + 3 else PASSES_HEIGHT  # a box takes at least three lines
    lines += _passes(loader, recent, width, passes)
    if left > passes:
        numbers = NUMBERS_WIDTH if width >= 2 * NUMBERS_WIDTH else 0
        tall = left - passes
        said = [event_line(*each, recent.start) for each in recent.said[2 - tall :]]
        events = box("last events", said, width - numbers, tall)
        boxes = [box("numbers", _numbers(loader, recent), numbers - 1, tall)] if numbers else []
        lines += beside([events, *boxes])
    return lines


# ---- the first row: a line for each worker


def _workers(loader: LoaderState, recent: Recent, width: int, height: int) -> list[Line]:
    count = len(loader.workers)
    shown = min(count, max(1, height - 2))
    shown -= shown < count and shown > 1  # room for how many more there are
    left, right = min(46, int(width * 0.22)), min(46, int(width * 0.275))  # a longer name at the right
    middle = width - left - right - 2
    index = [row_of_cells(each.messages, left - 2, len(each.buffer)) for each in loader.index_queues[:shown]]
    work = [_worker(loader, recent, each, middle - 2) for each in loader.workers[:shown]]
    results = [row_of_cells(each.messages, right - 2, len(each.buffer)) for each in loader.result_queues[:shown]]
    if shown < count:
        work.append([text(f" and {count - shown} more workers", DIM)])
    tall = len(work) + 2
    boxes = [
        box("↱ index_queue", index, left, tall, "what to load"),
        box("workers", work, middle, tall, "load samples and make batches of them"),
        box("worker_result_queue", results, right, tall, "batches"),
    ]
    return beside(boxes, range(1, shown + 1))


def _worker(loader: LoaderState, recent: Recent, worker: WorkerState, width: int) -> Line:
    """`0 fetching   7  12.3 ms ▁▃▇█▇ 93%`: id, status, task, since when, the last seconds, share of them at work."""
    digits = len(str(loader.num_workers - 1))
    words = 13 if width >= 50 else 10
    task = [cell(worker.task)] if worker.task >= 0 else []
    holds_up = worker.task >= 0 and worker.task == _gap(loader)
    status = worker.status.value
    if worker.exit_code is not None:
        status += f" ({worker.exit_code})" if words > 10 else f" {worker.exit_code}"
    line = fit([text(f"{worker.worker:{digits}} "), text(status, STYLES.get(worker.status, DIM))], digits + words)
    line += fit(task, max(5, len(str(loader.send_idx)) + 2), right=True)
    line += [text(f"{duration(recent.now - worker.since) if worker.since else '':>8}", BAD if holds_up else PLAIN)]
    room = width - length(line) - 6
    if room >= 4 and worker.worker < len(recent.workers):
        load = strip_of(recent.workers[worker.worker], recent.since, recent.now, room)
        line += [text(" "), *strip(load)]
        line += [text(f"{recent.busy[worker.worker]:5.0%}")]
    return line


# ---- the second row: from the workers' results to main's hands


def _passes(loader: LoaderState, recent: Recent, width: int, height: int) -> list[Line]:
    boxes = []
    rest = width
    if loader.pin_thread.status is not PinStatus.NONE:
        part = int(width * 0.19)
        boxes.append(box("↳ pin thread", _pin(loader, recent, part - 2), part, height, "page-locks"))
        ready = [
            row_of_cells(loader.data_queue.messages, part - 2),
            [text(f"{len(loader.data_queue)} ready", DIM)],
        ]
        boxes.append(box("data_queue", ready, part, height))
        rest -= 2 * (part + 1)
    if loader.workers:
        part = int(width * (0.26 if boxes else 0.48))
        boxes.append(box("reorder buffer", _reorder_buffer(loader, part - 2), part, height, "came early"))
        rest -= part + 1
    boxes.append(box("main", _main(loader, recent, rest - 2), rest, height, "the training loop"))
    return beside(boxes, (1,))


def _pin(loader: LoaderState, recent: Recent, width: int) -> list[Line]:
    pin = loader.pin_thread
    held = [cell(pin.task)] if pin.task >= 0 else [text(duration(recent.now - pin.since))]
    return [
        [text(pin.status.value, STYLES.get(pin.status, DIM))],
        fit(held, width, right=True),
        [text(f"busy {recent.pin_busy:.0%}", DIM)],
    ]


def _reorder_buffer(loader: LoaderState, width: int) -> list[Line]:
    if loader.config.get("in_order") is False:
        return [[text("not used:", DIM)], [text("in_order=False", DIM)]]
    if not loader.reorder_buffer:
        return [[text("empty", DIM)], [text("all come in order", DIM)]]
    waits_for = _gap(loader)
    if waits_for < 0:
        kept = row_of_cells(loader.reorder_buffer, width)
        return [kept, [text(f"{loader.reorder_buffer[0]} is next", DIM)]]
    gap = [text("  "), text(f"{waits_for}?", BAD)]
    kept = row_of_cells(loader.reorder_buffer, width - length(gap))
    entry = loader.task_info.get(waits_for)
    where = f"worker {entry.worker} has it" if entry is not None else "it is on its way"
    return [[*kept, *gap], [text(f"until {waits_for} comes,")], [text(where)]]


def _gap(loader: LoaderState) -> int:
    """The task that the others in the reorder buffer wait for; -1 if there is none."""
    waits_for = loader.waits_for_task
    return -1 if waits_for in loader.reorder_buffer else waits_for


def _main(loader: LoaderState, recent: Recent, width: int) -> list[Line]:
    main = loader.main
    what = [text(main.status.value, STYLES.get(main.status, DIM))]
    if main.status is MainStatus.TRAINING and recent.training_on >= 0:
        what += [text(" on "), cell(recent.training_on)]
    elif main.in_hand >= 0:
        what += [text(" with "), cell(main.in_hand)]
    elif main.waits_for >= 0:
        what += [text(" for "), text(f"{main.waits_for}?", BOLD)]
    share = f"trained {recent.trained:.0%}, in the loader {recent.in_loader:.0%}"
    load = strip_of(recent.training, recent.since, recent.now, max(1, width))
    since = text(f" {duration(recent.now - main.since)}")
    return [
        ends(what if length([*what, since]) <= width else what[:1], [since], width),
        strip(load),
        [text(share if len(share) <= width else share.partition(", ")[2], DIM)],
    ]


# ---- the third row


def _numbers(loader: LoaderState, recent: Recent) -> list[Line]:
    width = NUMBERS_WIDTH - 3
    rows: list[tuple[str, Line]] = [
        ("batches a second", [text(f"{recent.batches_per_second:.1f}", BOLD)]),
        ("in the loader", _share(recent.in_loader, WAITS)),
    ]
    if recent.busy:
        rows.append(("workers busy", _share(sum(recent.busy) / len(recent.busy), GOOD)))
    rows.append(("batches yielded", [text(str(loader.yielded))]))
    if loader.workers:
        rows.append(("tasks outstanding", [text(str(loader.tasks_outstanding))]))
        rows.append(("send_idx", [text(str(loader.send_idx))]))
        rows.append(("rcvd_idx", [text(str(loader.rcvd_idx))]))
    return [ends([text(name)], value, width) for name, value in rows]


def _share(share: float, style: Style) -> Line:
    """0 to 1 as a bar, and in digits."""
    full = min(8, round(share * 8))
    return [text("█" * full, style), text("░" * (8 - full), DIM), text(f"{share:5.0%}")]


HELP: list[Line] = [
    [text(" index_queue         ", BOLD), text("of each worker: which samples make its next batches")],
    [text(" workers             ", BOLD), text("each loads the samples of a batch and puts them together")],
    [text(" worker_result_queue ", BOLD), text("batches that a worker has made, not taken yet")],
    [text(" pin thread          ", BOLD), text("takes and page-locks them; then they wait in data_queue")],
    [text(" reorder buffer      ", BOLD), text("batches that came early, until it is their turn")],
    [text(" main                ", BOLD), text("your training loop, in its training step or in the loader")],
    [],
    [cell(7), text(" A batch. It keeps its colour from index_queue to the training step.")],
    [text(" ╎  "), text("In a queue, the next to be taken is at the right. Left of this line:")],
    [text("    messages in the feeder thread's buffer. Right of it: in the pipe.")],
    [text(" 5? ", BAD), text("The batch that the reorder buffer waits for.")],
    [text(" ▃▇ 91% "), text("The last five seconds, or less, and the share of them at work.")],
    [text(" send_idx, rcvd_idx ", BOLD), text("the batch that main asks for next; that training gets next")],
    [],
    [text(" q  space  h ", BOLD), text("quits, the watched run goes on; pauses and resumes; this page")],
    [text(" ← → ", BOLD), text("one event back or forward (replay)")],
]
