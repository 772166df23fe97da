"""Exercise 10: the pin loop.

torch's loop puts with a timeout and checks its done event between two tries, because a blocked put would not notice the
shutdown. minidl's data_queue never blocks on a put. What remains of that mistake is a loop that goes on after the flag
is set, because it treats Stopped like any other error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from minidl.events import WAKE, Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import with_real_processes
from notebooks.exercises.catalogue.alone_messages import passes_on, pins_alone
from notebooks.exercises.catalogue.pinning_programs import epochs, faulty, mixed, plain, streams, unpinnable, unreadable
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.protocol import LEAVES_NOTHING, RAISES_NOTHING, Breach, Broken, Rule, Run, gives, play

PIN_THREAD = "pin thread"
STEPS = 800  # a run has 300 at most


PINNED = [f"{key} pinned" for key in range(4)]
SKIPPING = [PINNED[0], "ValueError", *PINNED[2:]]


@dataclass(frozen=True)
class Case:
    """A program, and what the training loop may get from it."""

    program: Callable[[], list[str]]
    call: str
    expected: str
    gives: tuple[list[str], ...]


CASES = (
    Case(plain, "four batches, two workers, pin_memory='host'", "every batch, pinned", (PINNED,)),
    Case(
        faulty,
        "four batches; the dataset raises a ValueError for sample 1",
        "the ValueError in place of batch 1, and the other batches",
        (SKIPPING,),
    ),
    Case(
        unpinnable,
        "four batches; pinning batch 1 raises a ValueError",
        "the ValueError in place of batch 1, and the other batches",
        (SKIPPING,),
    ),
    Case(
        unreadable,
        "four batches; batch 1 cannot be unpickled, so results.get() raises",
        "a RuntimeError at once: a batch is lost",
        ([PINNED[0], "RuntimeError"], ["RuntimeError"]),
    ),
    Case(
        epochs,
        "two epochs with persistent workers, which acknowledge the second one",
        "every batch of both epochs, pinned",
        (PINNED[:2] * 2,),
    ),
    Case(
        streams,
        "an iterable dataset: worker 0 has one sample, worker 1 two",
        "every batch, pinned",
        (PINNED[:2] + PINNED[3:],),
    ),
)


# ---- rules


def _stays_alive(run: Run) -> Iterator[Breach]:
    for name, error in run.outcome.errors:
        if name == PIN_THREAD:
            own = [k for k in range(len(run.events)) if run.outcome.threads[run.events["thread"][k]][1] == PIN_THREAD]
            yield Breach(f"the pin thread has died of {type(error).__name__}: {error}", own[-1:])


def _stops(run: Run) -> Iterator[Breach]:
    told = [int(k) for k in run.of(Kind.PIN_STOPPING)]
    joined = run.events["value"][run.of(Kind.PIN_JOINED)]
    if told and (not len(joined) or not joined[-1]):
        yield Breach("main has set the flag, but the pin thread goes on", told[-1:])


def _comes(run: Run) -> Iterator[Breach]:
    if run.never_ends:
        yield Breach("main waits for a batch that never comes", [int(run.of(Kind.ASKED)[-1])])


def _only_batches(run: Run) -> Iterator[Breach]:
    no_batch = {
        int(run.events["task"][k]): int(run.events["kind"][k]) for k in run.of(Kind.FETCH_FAILED, Kind.STREAM_END)
    }
    for k in run.of(Kind.PIN_BEGIN):
        task = int(run.events["task"][k])
        if task in no_batch:
            what = "an exception" if no_batch[task] == Kind.FETCH_FAILED else "the end of a stream"
            yield Breach(f"task {task} brought {what}, and it was pinned", [int(k)])


STAYS_ALIVE = Rule("the pin thread lives", "the pin thread lives until it is told to end, whatever comes", _stays_alive)
STOPS = Rule("the pin thread stops", "once the flag is set, the pin thread ends", _stops)
COMES = Rule("something for each task", "main gets a batch for each task, or an exception in its place", _comes)
ONLY_BATCHES = Rule("only batches are pinned", "anything but a batch is passed on as it is", _only_batches)
RULES = [STAYS_ALIVE, STOPS, COMES, ONLY_BATCHES, RAISES_NOTHING, LEAVES_NOTHING]


# ---- which mistake

CAUSES = {
    "does not pin": "Batches must leave the loop pinned: `pin_batch(...)` returns a pinned copy, and does not change "
    "the batch itself. Is it the copy that goes to data_queue? And is the next batch pinned if one could not be?",
    "pins a wrapped error": "A Result carries a batch, or an ExceptionWrapper in its place. An exception has no "
    "memory to pin: check `message.data` first, and pass it on.",
    "pins the end of a stream": "A Result can carry a StreamEnd in a batch's place. It has no memory to pin: pass it "
    "on.",
    "an exception kills the thread": "An uncaught exception ends the thread, and main waits for messages that never "
    "come. Two lines can raise through no fault of yours: the one that takes a message off the queue (unpickling) "
    "and the one that pins. Main must learn of both.",
    "the error has no task": "Failed means that a message was lost and its task is unknown, so main gives up. Here "
    "the task is known. Send a Result with the exception in the batch's place: then only that batch is lost.",
    "ends too early": "The pin thread ended before it was told to; main noticed five seconds later. The loop must go "
    "on, whatever comes, until `results.get()` raises Stopped.",
    "loses a message": "Main waits for a message that the loop took and did not pass on. Every message from "
    "`results` must go to data_queue in some form; for one that is lost, send a Failed.",
    "takes every message for a batch": "Not every message is a Result: a worker's acknowledgement of a new epoch "
    "(Resumed) and a death (Died) have no data. Pass them on as they are.",
    "goes on after the flag is set": "Once main has set the flag, every `results.get()` raises Stopped. That is how "
    "the loop ends. Stopped is an Exception, so catch it before you catch Exception.",
    "wraps the error of a Failed": "Main raises its own error from the one in a Failed: put the exception itself into "
    "it, not an ExceptionWrapper, which is for a Result.",
    "an empty ExceptionWrapper": "ExceptionWrapper(where=...) takes the exception that is being handled at the moment: "
    "outside an except clause there is none, and main has nothing to raise. Make it where you catch.",
    gives().name: "What main gets is not what the workers sent. Compare the call of pin_batch, and the Result that you "
    "make, with the legend: which argument is which?",
    "raises": "Nothing goes wrong in this run, yet the pin thread ends with an exception: there is a slip in the "
    "line named below. Put whole messages into data_queue: the Result with its task's number, not just its batch.",
}


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        for case in CASES:
            what_comes = replace(gives(*case.gives), sentence=case.expected)
            broken = play(case.program, [*RULES, what_comes], chance=30, most_steps=STEPS)
            if broken is not None:
                return explained(answer, broken, _mistake(broken, case.program), case.call, CAUSES)
    return passes_on(answer) or pins_alone(answer) or with_real_processes(answer, mixed, SKIPPING * 2)


def _mistake(broken: Broken, program: Any) -> str:
    rule, run = broken.rule, broken.run
    if "exception causes must derive" in broken.error:
        return "wraps the error of a Failed"
    if "'NoneType' object has no attribute '__name__'" in broken.error:  # raised by ExceptionWrapper.reraise
        return "an empty ExceptionWrapper"
    if rule == STAYS_ALIVE.name:
        if any(isinstance(error, (NameError, ImportError)) for _, error in run.outcome.errors):
            return "raises"
        mistakes = {unpinnable: "an exception kills the thread", unreadable: "an exception kills the thread"}
        return (mistakes | {epochs: "takes every message for a batch"}).get(program, "raises")
    if rule == ONLY_BATCHES.name:
        return "pins the end of a stream" if program is streams else "pins a wrapped error"
    if "not pinned" in broken.result:
        return "does not pin"
    if "RuntimeError" in broken.result:
        failed = run.of(Kind.PUT, queue=Queue.DATA, task=WAKE)  # the number of a Failed
        return "the error has no task" if len(failed) else "ends too early"
    return {STOPS.name: "goes on after the flag is set", COMES.name: "loses a message"}.get(rule, rule)


EXERCISE = Exercise(
    number=10,
    name="pin_loop",
    title="the pin loop",
    references=("minidl.pinning:pin_loop", "minidl.pinning:pinned"),
    task="""
    With `pin_memory`, a thread in main's process sits between the workers and main: it takes the workers' messages,
    copies their batches into page-locked memory, and passes everything on. Write it. `pin_loop` is what the thread
    runs: every message from `results` goes to `data_queue`, until main sets the flag that stops it. `pinned` takes a
    Result with a batch, and returns one with the pinned batch.

    Not every message is a Result, and not every Result has a batch: what needs no pinning is passed on as it is. Only
    the flag may end the thread, or what is no Exception (SystemExit). If a batch cannot be pinned, the exception takes
    its place, in an ExceptionWrapper: main raises it when the task's turn comes, and the other batches still arrive. If
    a message cannot even be unpickled, its task is unknown: main gets a Failed.

    `data_queue.put` never blocks. (torch's loop puts with a timeout, and checks the done event between two tries.) You
    may leave out the calls of `emit`, the thread's name, the number of torch's threads, and `device_index`: it is None
    here.
    """,
    legend={
        "results": "the workers' messages: results.get() waits for the next one. It raises Stopped once the flag is "
        "set, and whatever unpickling raises",
        "data_queue": "what main reads: data_queue.put(message)",
        "Result": "Result(epoch_id, task_id=3, worker_id=1, data=batch); .data may also be an ExceptionWrapper or a "
        "StreamEnd",
        "Failed": "Failed(epoch_id, error): a message is lost, and its task is unknown; error is the exception that "
        "was raised, as it is, and epoch_id is `pin_loop`'s argument",
        "pin_batch": "pin_batch(batch, device, epoch_id, task_id, worker_id): a pinned copy of the batch",
        "device": "'host': pass it to pin_batch (with an accelerator it is the type, 'cuda')",
        "ExceptionWrapper": "ExceptionWrapper(where='in the pin thread'), made in an except clause: the exception "
        "that is being handled, ready to travel",
    },
    hints=(
        "`results.get()` can return a Result with a batch, a Result without one, or another message; it can raise "
        "Stopped, or something else. What does each mean for main, which waits at the other end?",
        "The loop has one `try`, around `results.get()`: `except Stopped` leaves the loop, and comes before `except "
        "Exception`, which turns the error into a Failed. `pinned` has another, around `pin_batch`.",
        "while True: try: message = results.get(); except Stopped: break; except Exception as error: message = "
        "Failed(epoch_id, error). If it is a Result whose data is neither an ExceptionWrapper nor a StreamEnd: "
        "message = pinned(message, device). Then data_queue.put(message). `pinned`: try to return a Result with the "
        "same three numbers and pin_batch(...); except Exception: return one with ExceptionWrapper(where=...) as its "
        "data.",
    ),
    grade=grade,
    notebook="08-the-pin-thread.ipynb",
    protocol=True,
    forbidden=("_pin_memory_loop",),
)
