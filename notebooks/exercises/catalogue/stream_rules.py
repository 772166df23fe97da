"""Rules of exercise 9: loaders with two streams that end."""

from __future__ import annotations

from collections.abc import Iterator

from minidl.events import STOP, Kind, Queue
from notebooks.exercises.protocol import Breach, Rule, Run

MAIN = 0  # the number of main's thread


def ends(run: Run, before: int) -> dict[tuple[int, int, int], int]:
    """{(epoch, task, worker): position} of the StreamEnds that main has received before this position."""
    said = {run.key(position) for position in run.of(Kind.STREAM_END)}
    got = run.of(Kind.GOT, queue=Queue.RESULT)
    return {run.key(at): int(at) for at in got if at < before and run.key(at) in said}


def _waits_for_nothing(run: Run) -> Iterator[Breach]:
    """Main waits for the task after the last one it yielded. The breach shows where that worker's StreamEnd came."""
    if not run.never_ends or not len(run.of(Kind.STREAM_END)):
        return
    last = max((run.key(at)[:2] for at in run.of(Kind.YIELDED)), default=(0, -1))
    for position, task, worker in run.tasks_sent():
        epoch = int(run.events["epoch"][position])
        if (epoch, task) > last:
            came = [at for (of, _, who), at in ends(run, len(run.events)).items() if (of, who) == (epoch, worker)]
            what = f"main waits for ever for the batch of task {task}, which worker {worker} has"
            yield Breach(what, came[:1] or [len(run.events) - 1])
            return


def _all_have_ended(run: Run) -> Iterator[Breach]:
    for position in run.of(Kind.EPOCH_END):
        epoch = int(run.events["epoch"][position])
        ended = {worker for of, _, worker in ends(run, position) if of == epoch}
        if len(ended) < 2:
            what = f"worker {ended.pop()}'s stream" if ended else "no stream"
            yield Breach(f"the epoch was over when {what} had ended; there are two", [int(position)])


def _nothing_thrown_away(run: Run) -> Iterator[Breach]:
    said, yielded = ends(run, len(run.events)), {run.key(at)[:2] for at in run.of(Kind.YIELDED)}
    over = {int(run.events["epoch"][at]) for at in run.of(Kind.EPOCH_END)}
    for at in run.of(Kind.GOT, queue=Queue.RESULT):
        epoch, task, worker = run.key(at)
        if task >= 0 and epoch in over and (epoch, task, worker) not in said and (epoch, task) not in yielded:
            yield Breach(f"batch {task} arrived from worker {worker} and was never yielded", [int(at)])


def _until_main_goes_on(run: Run, at: int) -> int:
    """Where main next waits, takes a message, yields a batch or ends the epoch."""
    kinds = (Kind.WAIT, Kind.GOT, Kind.YIELDED, Kind.SHUTDOWN_BEGIN, Kind.EPOCH_END)
    later = [each for each in run.of(*kinds) if each > at and run.events["thread"][each] == MAIN]
    return int(later[0]) if later else len(run.events)


def _stops(run: Run) -> list[tuple[int, int]]:
    """(position, worker) of each Stop that main has sent."""
    return [(int(at), run.worker(at)) for at in run.of(Kind.PUT, queue=Queue.INDEX, task=STOP)]


def _told(run: Run) -> Iterator[Breach]:
    for (_, _, worker), at in ends(run, len(run.events)).items():
        until = _until_main_goes_on(run, at)
        if until < len(run.events) and not any(who == worker and at < put < until for put, who in _stops(run)):
            yield Breach(f"worker {worker}'s stream has ended, and main goes on without telling it to stop", [until])


def _stays(run: Run) -> Iterator[Breach]:
    begin = run.of(Kind.SHUTDOWN_BEGIN)
    for put, worker in _stops(run):
        if not len(begin) or put < begin[0]:
            yield Breach(f"worker {worker} was told to stop, but another epoch follows", [put])


def _what_an_end_brings(run: Run) -> Iterator[Breach]:
    ended: dict[int, set[int]] = {}
    for (epoch, _, worker), at in sorted(ends(run, len(run.events)).items(), key=lambda item: item[1]):
        ended.setdefault(epoch, set()).add(worker)
        until = _until_main_goes_on(run, at)
        if len(ended[epoch]) < 2 and not any(at < position < until for position, _, _ in run.tasks_sent()):
            yield Breach(f"worker {worker}'s stream has ended, and main goes on without sending a task", [until])


def _not_to_the_ended(run: Run) -> Iterator[Breach]:
    over = {(epoch, worker): at for (epoch, _, worker), at in ends(run, len(run.events)).items()}
    for position, task, worker in run.tasks_sent():
        if position > over.get((run.key(position)[0], worker), len(run.events)):
            yield Breach(f"task {task} was sent to worker {worker}, whose StreamEnd main had received", [position])


def _no_entry(run: Run) -> Iterator[Breach]:
    for position in run.of(Kind.SHUTDOWN_BEGIN):
        count = int(run.events["value"][position])
        if count:
            yield Breach(f"{count} tasks were still in _task_info at the end", [int(position)])


def _asks_no_more(run: Run) -> Iterator[Breach]:
    for position in run.of(Kind.FETCH_FAILED):
        yield Breach("the stream was asked again", [int(position)])


WAITS_FOR_NOTHING = Rule("waits for nothing", "main waits for no task of a stream that has ended", _waits_for_nothing)
ALL_HAVE_ENDED = Rule("all have ended", "an epoch is over when every worker's stream has ended", _all_have_ended)
NOTHING_THROWN_AWAY = Rule("nothing is thrown away", "each batch that arrives is yielded", _nothing_thrown_away)
TOLD = Rule("told to stop", "a worker whose stream has ended is told to stop, if it is not persistent", _told)
STAYS = Rule("stays for the next epoch", "a persistent worker is told to stop when the loader shuts down", _stays)
WHAT_AN_END_BRINGS = Rule("another's chance", "another task is sent for one that brought no batch", _what_an_end_brings)
NOT_TO_THE_ENDED = Rule(
    "not to an ended worker", "a worker whose stream has ended gets no more tasks of this epoch", _not_to_the_ended
)
NO_ENTRY = Rule("no entry is left", "at the end of an epoch `_task_info` is empty", _no_entry)
ASKS_NO_MORE = Rule("asked no more", "a stream that has ended is not asked again", _asks_no_more)
