"""The loader in all its uses, with an answer at work: programs that no single exercise is about.

An exercise's own programs know its known mistakes, and name them. These know only what minidl's own loader does, in
which a mistake shows that nobody listed: three workers, several epochs, several errors, streams of all kinds, Ctrl-C.
What each returns does not depend on the schedule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from minidl.world.simulated import simulate
from minidl.world.simulated.explore import what_must_hold
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import attempt, short
from notebooks.exercises.catalogue.as_minidl_does import CALLS, outcome_of
from notebooks.exercises.exercise import Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.programs import Keys, batches_or_errors, load, without_status_checks
from notebooks.exercises.protocol import ALWAYS, Breach, Rule, Run, gives, play
from notebooks.exercises.use_programs import (
    Broken,
    EndsInTheMiddle,
    EndsInTheMiddleOfItself,
    FailsInTheMiddle,
    GoesOnAfterAnError,
    ItsOwnIterator,
    Late,
    Streams,
    Undecodable,
    WithNone,
    choices,
    choices_by_room,
    counts,
    epochs,
    fails_in_worker_1,
    fails_to_draw,
    goes_on,
    in_any_order,
    loader_of,
    not_all_bring_batches,
    nothing,
    received_before,
    receives,
    there_already,
    two_at_once,
    until_it_ends,
    when_it_ends,
)

STEPS = 6_000  # at most in a run
INTERRUPTS = 60  # random schedules, each with Ctrl-C, a death or an error somewhere


@dataclass(frozen=True)
class Use:
    """A program, and in words what is special about it."""

    program: Callable[[], Any]
    words: str
    cause: str  # what to think of, if it goes wrong


def judged(answer: Answer, chance: int = 3) -> Finding | None:
    """The first use in which the loader does not do what it does with minidl's own functions."""
    number = answer.exercise.number
    if number in CALLS:
        return compared(answer, number)
    for use in USES.get(number, ()):
        beat(use.words)
        expected = simulate(use.program, draws=False).result
        with answer.at_work():
            broken = play(use.program, [*ALWAYS, gives(expected)], chance=chance, most_steps=STEPS)
        if broken is not None:
            return explained(answer, broken, broken.rule, use.words, {broken.rule: use.cause})
    for use in INTERRUPTED.get(number, ()):
        beat(f"{use.words}; at some moment Ctrl-C, a death or an error")
        with answer.at_work():
            broken = play(use.program, [whatever_happens(use)], faults=1, chance=INTERRUPTS, most_steps=STEPS)
        if broken is not None:
            return explained(answer, broken, broken.rule, use.words, {broken.rule: use.cause})
    return None


def compared(answer: Answer, number: int) -> Finding | None:
    """Calls that no known mistake is behind."""
    for words, call in CALLS[number]:
        expected = outcome_of(call)
        tried = attempt(answer, words, functools.partial(outcome_of, call))
        if tried.error is not None or tried.value != expected:
            cause = "Read the text once more with this case in mind: it says what to do here."
            return tried.finding("another case", short(expected), cause)
    return None


def whatever_happens(use: Use) -> Rule:
    expected = simulate(use.program, draws=False)

    def look(run: Run) -> Iterator[Breach]:
        for what in what_must_hold(run.outcome, expected):
            yield Breach(what, [len(run.events) - 1])

    return Rule("whatever happens", "after Ctrl-C, a death or an error nothing is lost in silence, or left", look)


# ---- uses


def use(function: Callable[..., Any], *args: Any, **options: Any) -> Callable[[], Any]:
    return without_status_checks()(functools.partial(function, *args, **options))


ERRORS = Use(
    use(epochs, Broken(11, 0, 3, 4, 10), None, None),
    "3 persistent workers, two epochs of 11 batches, of which four raise, among them the first and the last",
    "A batch that raises is a batch like any other: afterwards everything is counted, sent and removed as if it had "
    "been handed out, and the next epoch is not changed by it.",
)
ERRORS_IN_ANY_ORDER = Use(
    use(in_any_order, functools.partial(epochs, Broken(11, 0, 3, 4, 10), None, None, in_order=False)),
    "in_order=False, 3 persistent workers, two epochs of 11 batches, of which four raise",
    ERRORS.cause,
)
LEFT = Use(
    use(epochs, Keys(9), 2, None, 1, None),
    "3 persistent workers; of four epochs the first and the third are left after one or two batches",
    "Each epoch begins from nothing: what is still under way from the one before belongs to that one.",
)
FEW = Use(
    use(lambda: [load(Keys(n), 2, num_workers=w, prefetch_factor=1) for n, w in ((0, 2), (2, 1), (2, 3))]),
    "none or two batches, 1 to 3 workers, prefetch_factor=1, two epochs",
    "There are fewer batches than workers, or none at all; or only one can be under way at a time.",
)
COUNTS = Use(
    use(counts, Broken(8, 5)),
    "3 workers, 8 batches, of which one raises; and the counts at the end of the epoch",
    "At the end of an epoch nothing is outstanding: not in all, and not with any worker.",
)
STREAMS = Use(
    use(in_any_order, functools.partial(epochs, Streams(0, 5, 2), None, 2, None, batch_size=2)),
    "3 persistent workers, whose streams have 0, 5 and 2 samples, in batches of 2; the second of three epochs is left",
    "Streams end at different times, and one is empty. In the next epoch each begins anew.",
)
UNBATCHED = Use(
    use(in_any_order, lambda: [list(loader_of(Streams(0, 3, 1), batch_size=None, collate_fn=None))]),
    "batch_size=None, 3 workers, whose streams have 0, 3 and 1 samples",
    "Without automatic batching a task is one sample, not a list.",
)
NONES = Use(
    use(in_any_order, lambda: [list(loader_of(WithNone(), batch_size=2))]),
    "streams in which some samples are None",
    "Any object can be a sample. Only StopIteration means that the stream has ended.",
)
UNBATCHED_NONES = Use(
    use(in_any_order, lambda: [list(loader_of(WithNone(), batch_size=None, collate_fn=None))]),
    "batch_size=None, streams in which some samples are None",
    NONES.cause,
)
NONE_BATCHES = Use(
    use(load, Keys(7), 2, num_workers=3, collate_fn=nothing, persistent_workers=True),
    "3 persistent workers, two epochs, collate_fn returns None",
    "Any object can be a batch, None, too. Whether there is one must be known in another way.",
)
RESTARTS = Use(
    use(in_any_order, lambda: [list(loader_of(ItsOwnIterator(4, 0, 3), batch_size=3))]),
    "streams that begin anew when they are iterated again, or asked again after their end",
    "Take samples with next(), and after a StopIteration do not ask again.",
)
UNBATCHED_RESTARTS = Use(
    use(in_any_order, lambda: [list(loader_of(ItsOwnIterator(4, 0, 3), batch_size=None, collate_fn=None))]),
    "batch_size=None, streams that begin anew when they are asked again after their end",
    "Remember that a stream has ended, in every way in which it can: it must not be asked again.",
)
STREAM_GOES_ON = Use(
    use(
        lambda: [
            sorted(batches_or_errors(iter(loader_of(GoesOnAfterAnError(1, 5, 4), batch_size=size))), key=str)
            for size in (1, 2)
        ]
    ),
    "3 workers; the third sample of two streams raises ValueError, and the samples after it can be read",
    "A sample that raises is not the end of its stream: the next task gets the samples after it.",
)
STREAM_FAILS = Use(
    use(in_any_order, lambda: [list(batches_or_errors(iter(loader_of(FailsInTheMiddle(1, 4, 2), batch_size=2))))]),
    "3 workers; the second one's stream raises ValueError at its third sample",
    "An exception of the stream is not its end: it goes to main, which raises it.",
)
STOP_IN_A_MAP = Use(
    use(until_it_ends, EndsInTheMiddle(7), 3),
    "a map-style dataset; sample 2 raises StopIteration",
    "Only an IterableDataset ends by StopIteration. Of any other it is an exception like all others.",
)
STOP_IN_A_MAP_WITH_ITER = Use(
    use(until_it_ends, EndsInTheMiddleOfItself(7), 3),
    "a map-style dataset that also has __iter__; sample 2 raises StopIteration",
    "What counts is whether the dataset is an IterableDataset, not whether it can be iterated.",
)
INIT_FAILS = Use(
    use(until_it_ends, Keys(8), 1, worker_init_fn=fails_in_worker_1),
    "3 workers, 8 batches; worker_init_fn raises in worker 1",
    "Every task of that worker is answered with the failure, not only the first; the others work.",
)
TWO_AT_ONCE = Use(
    use(two_at_once), "two iterators of one loader, in turns", "What belongs to one must not reach another."
)
TIMEOUT = Use(
    use(until_it_ends, Late(5), 1, timeout=1),
    "timeout=1; sample 3 takes three seconds",
    "The user's timeout must still be raised: it comes from where main waits for the next message.",
)
TIMEOUT_AND_ON = Use(
    use(goes_on, Late(5), 8, timeout=1),
    "timeout=1; sample 3 takes three seconds, and next() is called again after each timeout",
    "A timeout loses nothing: the batch that was late is still the next one. What may have changed by then?",
)
ODD_ERROR = Use(
    use(until_it_ends, Undecodable(4), 1, num_workers=2),
    "4 batches; sample 1 raises UnicodeDecodeError, whose constructor takes five arguments",
    "An ExceptionWrapper knows how to raise what it holds, whatever its class wants.",
)


CHOICES = Use(
    use(choices),
    "3 workers, of which one or two have ended, and `_choose_worker` asked four times; `_try_put_index` called when "
    "one has ended, and when all have",
    "The turn passes to the next worker that is ACTIVE, round and round, and from there on: 0, 2, 0, 2 if worker 1 has "
    "ended. The task is counted for the worker that gets it. If none is left nothing is sent, counted or numbered.",
)
BY_ROOM = Use(
    use(choices_by_room),
    "in_order=False, 3 workers with 0 to 2 tasks each, of 6 or 9 in all; `_choose_worker` asked three times",
    "Each has room for two, or three. Look from the worker whose turn it is, round and round, at all: the first with "
    "room is chosen, and after it the turn passes to the next. If none has room: None.",
)
RECEIVES = Use(
    use(receives),
    "`_receive`, called with the timeouts 0, 2.5 and 0 for a Died, the batch of task 1 and that of task 0: what it "
    "returns, the counts after each, and the timeouts that `_get_data` got",
    "A Died is no result, and changes no count. A batch counts as received when it arrives, be it its turn or not. How "
    "long to wait is `_receive`'s argument.",
)
ONE_AT_A_TIME = Use(
    use(counts, Broken(6, 1, 3), num_workers=1, prefetch_factor=1),
    "one worker, prefetch_factor=1, 6 batches, of which two raise",
    "Only one task is under way at a time. Whatever it brings, a batch or an exception, the next one must be sent.",
)
ONE_AT_A_TIME_IN_ANY_ORDER = Use(
    use(counts, Broken(6, 1, 3), num_workers=1, prefetch_factor=1, in_order=False),
    f"in_order=False, {ONE_AT_A_TIME.words}",
    ONE_AT_A_TIME.cause,
)
NO_BATCHES_FIRST = Use(
    use(not_all_bring_batches),
    "the first two calls of `_receive` return None",
    "Any number of messages may bring no batch, one after the other.",
)
NO_BATCHES_FIRST_IN_ANY_ORDER = Use(
    use(not_all_bring_batches, in_order=False), f"in_order=False; {NO_BATCHES_FIRST.words}", NO_BATCHES_FIRST.cause
)
ENDS = Use(
    use(when_it_ends),
    "epochs of 0 and of 3 batches: whether the workers are gone after the last batch, and after the end",
    "The workers are shut down when the epoch is over, just before StopIteration: not earlier, and also if there was "
    "no batch at all.",
)
ENDS_IN_ANY_ORDER = Use(use(when_it_ends, in_order=False), f"in_order=False; {ENDS.words}", ENDS.cause)
STAYS = "Persistent workers stay when the epoch is over: the next one needs them."
ENDS_PERSISTENT = Use(use(when_it_ends, persistent_workers=True), f"persistent workers; {ENDS.words}", STAYS)
ENDS_PERSISTENT_IN_ANY_ORDER = Use(
    use(when_it_ends, in_order=False, persistent_workers=True), f"in_order=False, {ENDS_PERSISTENT.words}", STAYS
)
RECEIVED_BEFORE = Use(
    use(received_before),
    "`_receive` has been called twice before the first next()",
    "A batch may be there before `_next_task` waits for it: look first.",
)
RECEIVED_BEFORE_IN_ANY_ORDER = Use(
    use(in_any_order, lambda: [received_before(in_order=False)]),
    f"in_order=False; {RECEIVED_BEFORE.words}",
    RECEIVED_BEFORE.cause,
)
THERE_ALREADY = Use(
    use(there_already),
    "in_order=False, 2 workers; batch 1 has been received before the first next(), and batch 0 takes a second",
    "Any batch that is there can be handed out, not only that of `_rcvd_idx`: look at all before you wait.",
)
FAILS_TO_DRAW = Use(
    use(fails_to_draw),
    "a sampler that raises ValueError after eight keys",
    "Only StopIteration is the sampler's end. Any other exception must reach the training loop, or the epoch would be "
    "short and nobody knew why.",
)
HALF_DONE = "It works as long as nothing interrupts it. What is half done at the line where the interruption comes?"
ONE_EPOCH = Use(use(load, Keys(5), num_workers=2), "5 batches, 2 workers", HALF_DONE)
PINNED = Use(use(load, Keys(4), num_workers=2, pin_memory="host"), "4 batches, 2 workers, pinned", HALF_DONE)
TWO_EPOCHS = Use(
    use(load, Keys(3), 2, num_workers=2, persistent_workers=True),
    "2 epochs of 3 batches, 2 persistent workers",
    HALF_DONE,
)

IN_ORDER = (ERRORS, LEFT, FEW, COUNTS, INIT_FAILS, TWO_AT_ONCE, TIMEOUT, NONE_BATCHES)
OF_STREAMS = (STREAMS, UNBATCHED, NONES, UNBATCHED_NONES, UNBATCHED_RESTARTS, STREAM_GOES_ON, RESTARTS, STREAM_FAILS)
# By exercise: what its text leaves to another exercise is not among them.
USES: dict[int, tuple[Use, ...]] = {
    5: (CHOICES, FAILS_TO_DRAW, *IN_ORDER, *OF_STREAMS),
    6: (*IN_ORDER, *OF_STREAMS, ERRORS_IN_ANY_ORDER, STOP_IN_A_MAP, STOP_IN_A_MAP_WITH_ITER),
    7: (
        *(RECEIVES, RECEIVED_BEFORE, NO_BATCHES_FIRST, TIMEOUT_AND_ON, ODD_ERROR),
        *(ONE_AT_A_TIME, ENDS, ENDS_PERSISTENT, *IN_ORDER),
    ),
    8: (
        BY_ROOM,
        NO_BATCHES_FIRST_IN_ANY_ORDER,
        RECEIVED_BEFORE_IN_ANY_ORDER,
        THERE_ALREADY,
        ONE_AT_A_TIME_IN_ANY_ORDER,
        ENDS_IN_ANY_ORDER,
        ENDS_PERSISTENT_IN_ANY_ORDER,
        ERRORS_IN_ANY_ORDER,
    ),
    9: (*IN_ORDER, *OF_STREAMS),
    10: (*IN_ORDER, *OF_STREAMS, ERRORS_IN_ANY_ORDER),
    11: (*IN_ORDER, *OF_STREAMS, ERRORS_IN_ANY_ORDER),
    12: (*IN_ORDER, *OF_STREAMS, ERRORS_IN_ANY_ORDER),
    13: (*IN_ORDER, *OF_STREAMS, ERRORS_IN_ANY_ORDER),
}
INTERRUPTED: dict[int, tuple[Use, ...]] = {
    6: (ONE_EPOCH, TWO_EPOCHS),
    12: (ONE_EPOCH, TWO_EPOCHS),
    13: (ONE_EPOCH, PINNED),
}
