"""Exercise 10: the pin loop.

torch's loop puts with a timeout and looks at its done event between two tries: a put that blocks would not hear of the
shutdown. minidl's data_queue never blocks on a put. What remains of that mistake is a loop that goes on after the flag
is set, because it takes Stopped for one error among others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from minidl.events import WAKE, Kind, Queue
from notebooks.exercises.answers import Answer
from notebooks.exercises.catalogue.pinned_batches import epochs, faulty, mixed, plain, streams, unpinnable, unreadable
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failing import tell
from notebooks.exercises.probes import real
from notebooks.exercises.protocol import LEAVES_NOTHING, RAISES_NOTHING, Breach, Broken, Rule, Run, gives, play

PIN_THREAD = "pin thread"
STEPS = 800  # a run has 300 at most


PINNED = [f"{key} pinned" for key in range(4)]
SKIPPING = [PINNED[0], "ValueError", *PINNED[2:]]


@dataclass(frozen=True)
class Case:
    """A program, and what the training loop may get of it."""

    program: Callable[[], list[str]]
    call: str
    expected: str
    gives: tuple[list[str], ...]


CASES = (
    Case(plain, "four batches, two workers, pin_memory='host'", "every batch, pinned", (PINNED,)),
    Case(
        faulty,
        "four batches; the dataset raises a ValueError for sample 1",
        "the ValueError in the place of batch 1, and the other batches",
        (SKIPPING,),
    ),
    Case(
        unpinnable,
        "four batches; pinning batch 1 raises a ValueError",
        "the ValueError in the place of batch 1, and the other batches",
        (SKIPPING,),
    ),
    Case(
        unreadable,
        "four batches; batch 1 cannot be unpickled, so results.get() raises",
        "a RuntimeError, at once: a batch is lost",
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
        yield Breach("main has set the flag, and the pin thread goes on", told[-1:])


def _comes(run: Run) -> Iterator[Breach]:
    if run.outcome.deadlock or run.outcome.endless:
        yield Breach("main waits for a batch that never comes", [int(run.of(Kind.ASKED)[-1])])


def _only_batches(run: Run) -> Iterator[Breach]:
    no_batch = {
        int(run.events["task"][k]): int(run.events["kind"][k]) for k in run.of(Kind.FETCH_FAILED, Kind.STREAM_END)
    }
    for k in run.of(Kind.PIN_BEGIN):
        task = int(run.events["task"][k])
        if task in no_batch:
            what = "an exception" if no_batch[task] == Kind.FETCH_FAILED else "the end of a stream"
            yield Breach(f"what came for task {task} is {what}, and it was pinned", [int(k)])


STAYS_ALIVE = Rule("the pin thread lives", "whatever comes, the pin thread lives until it is told to end", _stays_alive)
STOPS = Rule("the pin thread stops", "once the flag is set, the pin thread ends", _stops)
COMES = Rule("something for each task", "for each task main gets a batch, or the exception in its place", _comes)
ONLY_BATCHES = Rule("only batches are pinned", "what is no batch goes on as it is", _only_batches)
RULES = [STAYS_ALIVE, STOPS, COMES, ONLY_BATCHES, RAISES_NOTHING, LEAVES_NOTHING]


# ---- which mistake

CAUSES = {
    "does not pin": "Batches have to leave the loop pinned: `pin_batch(...)` returns a pinned copy, and leaves the "
    "batch as it was. Is it the copy that goes to data_queue?",
    "pins a wrapped error": "A Result carries a batch, or an ExceptionWrapper in its place. An exception has no "
    "memory to pin: look at `message.data` first, and let it pass.",
    "pins the end of a stream": "A Result can carry a StreamEnd in a batch's place. It has no memory to pin: let it "
    "pass.",
    "an exception kills the thread": "An exception that nobody catches ends the thread, and main waits for what it "
    "will never send. Two lines here can raise for no fault of yours: the one that takes a message off the queue "
    "(unpickling) and the one that pins. Both times main must hear of it.",
    "the error has no task": "Failed says that a message was lost and nobody knows whose: main gives up. Here the "
    "task is known. Only its batch is lost, if its exception goes on in the batch's place, in a Result.",
    "ends too early": "The pin thread has ended before it was told to; main noticed five seconds later. The loop goes "
    "on, whatever comes, until `results.get()` raises Stopped.",
    "loses a message": "Main waits for a message that the loop has taken and not passed on. Each one that comes out of "
    "`results` has to go to data_queue, one way or another; for one that is lost, say that it is.",
    "takes every message for a batch": "Not every message is a Result: a worker's acknowledgement of a new epoch "
    "(Resumed) and a death (Died) have no data. They go on as they are.",
    "goes on after the flag is set": "When main has set the flag, `results.get()` raises Stopped, and will each time "
    "from then on. That is how the loop ends; it is an Exception like others, so whoever catches those must look at "
    "it first.",
    "raises": "Nothing goes wrong in this run, and yet the pin thread ends with an exception: a slip in the line that "
    "is named below. What goes to data_queue is a whole message, with its task's number: the Result, and not its "
    "batch.",
}


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        for case in CASES:
            what_comes = replace(gives(*case.gives), sentence=case.expected)
            broken = play(case.program, [*RULES, what_comes], chance=30, most_steps=STEPS)
            if broken is not None:
                return tell(answer, broken, _mistake(broken, case.program), case.call, CAUSES)
    return real(answer, mixed, SKIPPING * 2)


def _mistake(broken: Broken, program: Any) -> str:
    assert broken.outcome is not None
    rule = broken.rule
    if rule == STAYS_ALIVE.name:
        if any(isinstance(error, (NameError, ImportError)) for _, error in broken.outcome.errors):
            return "raises"
        mistakes = {unpinnable: "an exception kills the thread", unreadable: "an exception kills the thread"}
        return (mistakes | {epochs: "takes every message for a batch"}).get(program, "raises")
    if rule == ONLY_BATCHES.name:
        return "pins the end of a stream" if program is streams else "pins a wrapped error"
    if program is plain and "not pinned" in broken.result:
        return "does not pin"
    if "RuntimeError" in broken.result:
        sent = Run(broken.outcome).of(Kind.PUT, queue=Queue.DATA)
        failed = (Run(broken.outcome).events["task"][sent] == WAKE).any()  # the number of a Failed
        return "the error has no task" if failed else "ends too early"
    return {STOPS.name: "goes on after the flag is set", COMES.name: "loses a message"}.get(rule, rule)


EXERCISE = Exercise(
    number=10,
    name="pin_loop",
    title="the pin loop",
    references=("minidl.pinning:pin_loop", "minidl.pinning:pinned"),
    task="""
    With `pin_memory` a thread of main stands between the workers and main: it takes the workers' messages, copies their
    batches into page-locked memory, and passes everything on. Write it. `pin_loop` is what the thread runs: every
    message of `results` goes to `data_queue`, until the flag is set that main uses to stop it. `pinned` takes a Result
    with a batch, and returns one with the pinned batch.

    Not every message is a Result, and not every Result has a batch: what needs no pinning goes on as it is. Nothing
    may end the thread but the flag. If a batch cannot be pinned, its exception takes its place, in an ExceptionWrapper:
    main raises it when the task's turn comes, and the other batches still come. If a message cannot even be unpickled,
    nobody knows which task it was: main gets a Failed.

    `data_queue.put` never blocks. (torch's loop puts with a timeout, and looks at the done event between two tries.)
    The calls of `emit`, the thread's name and the number of its threads may be left out, and so may `device_index`: it
    is None here.
    """,
    legend={
        "results": "the workers' messages: results.get() waits for the next one. It raises Stopped once the flag is "
        "set, and whatever unpickling raises",
        "data_queue": "what main reads: data_queue.put(message)",
        "Result": "Result(epoch_id, task_id=3, worker_id=1, data=batch); .data may also be an ExceptionWrapper or a "
        "StreamEnd",
        "Failed": "Failed(epoch_id, error): a message is lost, and nobody knows whose",
        "pin_batch": "pin_batch(batch, device, epoch_id, task_id, worker_id): a pinned copy of the batch",
        "device": "'host': what pin_batch is called with (an accelerator's type, 'cuda', where there is one)",
        "ExceptionWrapper": "ExceptionWrapper(where='in the pin thread'), made in an except clause: the exception "
        "that is being handled, ready to travel",
    },
    hints=(
        "List what `results.get()` can do: return a Result with a batch, a Result without one, a message that is no "
        "Result; raise Stopped; raise something else. What does each mean for main, who waits at the other end?",
        "In the loop there is one `try` around `results.get()`: `except Stopped` leaves the loop, and comes before "
        "`except Exception`, which makes a Failed of the error. In `pinned` there is another one around `pin_batch`.",
        "while True: try: message = results.get(); except Stopped: break; except Exception as error: message = "
        "Failed(epoch_id, error). If it is a Result whose data is neither ExceptionWrapper nor StreamEnd: message = "
        "pinned(message, device). Then data_queue.put(message). `pinned`: try to return a Result with the same three "
        "numbers and pin_batch(...); except Exception: return one with ExceptionWrapper(where=...) as its data.",
    ),
    grade=grade,
    notebook="08-the-pin-thread.ipynb",
    protocol=True,
    forbidden=("_pin_memory_loop",),
)
