"""Exercise 13: the shutdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minidl.world.simulated import simulate
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import with_real_processes
from notebooks.exercises.catalogue import shutdown_rules as ends
from notebooks.exercises.catalogue.alone import shuts_down_alone
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import explained
from notebooks.exercises.protocol import (
    ALWAYS,
    COMES_TO_AN_END,
    LEAVES_NOTHING,
    RAISES_NOTHING,
    Broken,
    Rule,
    gives,
    play,
)

ONE = f"an epoch with {ends.WORKERS} workers and a pin thread"
EARLY = "an iterator is dropped after one batch, and the index_queues hold more tasks"
HELD = "an epoch is over, and the iterator is still referred to"
HANG = "an iterator is dropped while both workers wait for a sample that never comes"

CAUSES = {
    "workers before the pin thread": "The pin thread reads what the workers write, so stop it first. Stopped after "
    "them, it can be in the middle of a message whose writer is gone: torch's loader has hung there.",
    "done event without the sentinel": "The done event wakes no worker: it is checked between two tasks, and this "
    "worker is waiting for a task. What can you send through the same queue to say that nothing more will come?",
    "no done event": "A worker takes its messages in order, and the Stop is queued behind all its tasks. What does a "
    "worker check before it begins a task? Set that before you send the first Stop.",
    "a join without a bound": "A worker may be in a fetch that never ends, and then never reads its Stop. A join "
    "without a timeout waits for it for ever, and step 4, the force, is never reached.",
    "a patience for each worker": "Each worker was given the whole PATIENCE, one after another: with 64 workers that "
    "is more than five minutes. They end in parallel: set one deadline for all, and give each join what is left.",
    "does not wait": "Workers that were about to end got SIGTERM in the middle of their work. Step 3 gives them "
    "time: a join with a timeout, before `use_force`.",
    "the queues are left open": "Pipes stay open while anything refers to the iterator, and main still watches for "
    "the deaths of its workers. Step 5 is `close_queues` and then `signals.unwatch`, in every case.",
    "a second call fails": "The shutdown is called at the end of an epoch, by `__del__`, and at interpreter exit: "
    "the second call finds everything closed, and an iterator whose constructor raised has nothing to close. Check "
    "`iterator._shutdown`, and set it.",
    "something is left": "A process or a thread of the loader is still there. Whatever is alive after step 3 needs "
    "the force of step 4.",
    "another process's workers": "A forked process has a copy of the iterator, and its `__del__` runs there, too. "
    "The workers are not its children: compare `iterator._owner_pid` with the pid of the running process.",
    "Ctrl-C leaves workers": "Ctrl-C came in step 3, and the exception left `shut_down` before the force, so workers "
    "that had not ended never will. Put what must always happen where an exception cannot skip it.",
}


def grade(answer: Answer) -> Finding | None:
    trials: list[tuple[str, Callable[[], Any], list[Rule], dict[str, str]]] = [
        (
            ONE,
            ends.program,
            [RAISES_NOTHING, ends.PIN_FIRST, ends.TOLD, ends.NO_FORCE, *ALWAYS, gives(ends.BATCHES)],
            {},
        ),
        (HANG, ends.stuck, [ends.WITHIN, *ALWAYS], {COMES_TO_AN_END.name: "a join without a bound"}),
        (EARLY, ends.dropped_early, [ends.TOLD, ends.SKIPS, ends.NO_FORCE, *ALWAYS], {}),
        (HELD, ends.still_held, [ends.LETS_GO, *ALWAYS], {}),
        (
            "an iterator is shut down again",
            ends.shut_down_again,
            [ends.ONCE, *ALWAYS, gives(ends.BATCHES)],
            _all("a second call fails"),
        ),
        (
            "a forked process shuts down the iterator that it inherited",
            ends.inherited,
            [*ALWAYS, gives(ends.BATCHES)],
            _all("another process's workers"),
        ),
    ]
    mistakes = {
        LEAVES_NOTHING.name: "something is left",
        ends.PIN_FIRST.name: "workers before the pin thread",
        ends.TOLD.name: "done event without the sentinel",
        ends.NO_FORCE.name: "does not wait",
        ends.SKIPS.name: "no done event",
        ends.LETS_GO.name: "the queues are left open",
        ends.WITHIN.name: "a patience for each worker",
    }
    with answer.at_work():
        for call, run, rules, also in trials:
            broken = play(run, rules, chance=40)
            if broken is not None:
                return _told_of(answer, broken, call, {**mistakes, **also})
        schedule = simulate(ends.stuck, schedule=ends.CtrlCInTheWait(), draws=False).token
        broken = play(ends.stuck, [LEAVES_NOTHING, COMES_TO_AN_END], chance=0, schedules=[schedule])
        if broken is not None:
            return _told_of(answer, broken, f"{HANG}; Ctrl-C comes meanwhile", _all("Ctrl-C leaves workers"))
    return shuts_down_alone(answer) or with_real_processes(answer, ends.program, ends.BATCHES)


def _all(mistake: str) -> dict[str, str]:
    """This mistake, whatever rule is broken."""
    return dict.fromkeys([ends.ONCE.name, "the right batches", *(each.name for each in ALWAYS)], mistake)


def _told_of(answer: Answer, broken: Broken, call: str, mistakes: dict[str, str]) -> Finding:
    return explained(answer, broken, mistakes.get(broken.rule, broken.rule), call, CAUSES)


EXERCISE = Exercise(
    number=13,
    name="shutdown",
    title="the shutdown",
    references=(
        "minidl.shutdown:shut_down",
        "minidl.shutdown:tell_workers_to_stop",
        "minidl.shutdown:wait_for_workers",
    ),
    task="""
    When an epoch is over, an iterator is dropped half way, or the interpreter exits, `shut_down(iterator)` ends the pin
    thread and the workers, and closes the queues. It may be called more than once for an iterator, and also in
    processes that were forked from main and have a copy of it: there it does nothing.

    Write it, and steps 2 and 3 of its five: 1 `stop_pin_thread`, 2 `tell_workers_to_stop`, 3 `wait_for_workers`, 4
    `use_force`, which ends those still alive, 5 `close_queues`. Each is called once, with the iterator. Main must never
    wait for ever, whatever a worker does: one may be in a fetch that never ends. All workers together have PATIENCE
    seconds to end by themselves, counted from step 3. If something raises in steps 1 to 3 (Ctrl-C), steps 4 and 5 must
    still run, and the caller gets the exception; after one in step 1 also call `end_pin_thread`.

    In step 2 a worker learns of the end in two ways. It checks `_workers_done_event` before each task: once that is
    set, it skips what is still in its queue. A Stop in its index_queue wakes it, and ends its loop. (You may leave out
    the calls of `emit`, and of `joined`, which emits.)
    """,
    legend={
        "iterator._shutdown": "False: there is something to shut down; True before anything is built",
        "iterator._owner_pid": "4711: the process that built the iterator; iterator._world.pid() is the running one",
        "iterator._workers": "[process, process]: each has join(timeout), is_alive(), exitcode",
        "iterator._workers_done_event": "a flag: set(), is_set()",
        "iterator._world.now()": "12.5: seconds on a clock that never goes back",
        "tell_to_stop(iterator, 0)": "puts a Stop on the index_queue of worker 0, and closes it; a second call is "
        "harmless",
        "end_pin_thread(iterator)": "step 1 again, for an exception that came in the middle of it; harmless if the "
        "thread has ended, or there is none",
        "signals.unwatch(iterator)": "after the last step, also if one before it has raised: main stops watching for "
        "the ends of its workers",
        "PATIENCE": "5.0 seconds",
    },
    hints=(
        "What reads what the others write? Stop that first. And which of the five steps can wait for something, and "
        "for how long at most?",
        "`shut_down` begins with a guard: return if `_shutdown` is already True, or if the running process is not "
        "`_owner_pid`; then set `_shutdown`. Steps 1 to 3 belong in a `try`, 4 and 5 in its `finally`.",
        "`tell_workers_to_stop`: set the done event, then call `tell_to_stop` for each worker_id. `wait_for_workers`: "
        "deadline = iterator._world.now() + PATIENCE, and for each worker join(max(0.0, deadline - "
        "iterator._world.now())). `shut_down`: guard; try: the three steps; except BaseException: end_pin_thread, "
        "raise; finally: use_force, close_queues, signals.unwatch.",
    ),
    grade=grade,
    notebook="10-shutting-down.ipynb",
    protocol=True,
)
