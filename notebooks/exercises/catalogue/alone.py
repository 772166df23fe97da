"""Exercises 6, 12 and 13: a learner's functions called alone. Each must do what minidl's own does."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

from minidl.shutdown import PATIENCE
from minidl.states import WorkerState
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import attempt
from notebooks.exercises.catalogue.scripted import (
    NEVER,
    Loader,
    Watched,
    after_an_error,
    checked_health,
    in_order,
    in_the_last_steps,
    noticed_end,
)
from notebooks.exercises.catalogue.worker_script import SCRIPTS, run
from notebooks.exercises.exercise import Finding

# ---- exercise 6


def works_alone(answer: Answer) -> Finding | None:
    for words, dataset, init, messages in SCRIPTS:
        expected = run(dataset, init, messages)
        tried = attempt(answer, f"a worker alone: {words}", lambda: run(dataset, init, messages))  # noqa: B023
        if tried.value == expected:
            continue
        if tried.error is not None:
            return tried.finding("a worker alone", "; ".join(expected), "It should do this, and nothing raises.")
        same = next((k for k, pair in enumerate(zip(tried.value, expected)) if pair[0] != pair[1]), len(expected) - 1)  # noqa: B905
        tried.got = "; ".join(["...", *tried.value[max(0, same - 1) : same + 2]])
        right = "; ".join(["...", *expected[max(0, same - 1) : same + 2]])
        cause = "The text says what to do with each kind of message, in which order, and what is looked at before."
        return tried.finding("a worker alone", right, cause)
    return None


# ---- exercise 13

AT = ("stop_pin_thread", "sets the done event", "tell_to_stop", "join")
ENDINGS: tuple[tuple[str, Callable[[Loader, Answer], list[str]], Callable[[], Loader]], ...] = (
    ("3 workers, which end within a second; called twice", in_order, lambda: Loader((0.1, 0.3, 0.2))),
    ("3 workers; called again while the first call has not returned", in_order, lambda: Loader((0.1,) * 3, again=True)),
    ("3 workers, which end after 2, 3 and 4 s", in_order, lambda: Loader((2.0, 3.0, 4.0))),
    ("2 workers; the first never ends", in_order, lambda: Loader((NEVER, 0.5))),
    (
        "2 persistent workers, whose streams have ended",
        in_order,
        lambda: Loader((0.1, 0.1), status=WorkerState.EXHAUSTED),
    ),
    ("2 workers, which have ended before", in_order, lambda: Loader((-NEVER, -NEVER))),
    (
        "a pin thread that takes 4 s to stop; 2 workers, which end 2 and 9 s after they were told",
        in_order,
        lambda: Loader((2.0, 9.0), pin_takes=4.0),
    ),
    ("an iterator that another process built", in_order, lambda: Loader((0.1, 0.1), own=False)),
    *(
        (
            f"{error.__name__} in the middle: {step}",
            after_an_error,
            lambda step=step, error=error: Loader((0.1, 0.1), step, error),
        )
        for step, error in itertools.product(AT, (KeyboardInterrupt, OSError, SystemExit))
    ),
    (
        "KeyboardInterrupt in the middle: use_force",
        in_the_last_steps,
        lambda: Loader((0.1, 0.1), "use_force"),
    ),
)
SHUTDOWN_CAUSE = (
    "Each of the five steps is done once, in order, also when something raises; every worker is told to stop, and all "
    f"together have {PATIENCE} s; a second call, or one in another process, does nothing."
)


def shuts_down_alone(answer: Answer) -> Finding | None:
    for words, what, loader in ENDINGS:
        expected = what(loader(), answer)
        tried = attempt(answer, f"shut_down(iterator): {words}", lambda: what(loader(), answer))  # noqa: B023
        if tried.value != expected:
            tried.got = "; ".join(tried.value) if tried.error is None else tried.got
            return tried.finding("the steps of a shutdown", "; ".join(expected), SHUTDOWN_CAUSE)
    return None


# ---- exercise 12


HEALTH: tuple[tuple[str, str, bool | None], ...] = tuple(
    (states, expected, pin)
    for states, pin, expected in (
        ("AA", None, "nothing"),
        ("AA", True, "nothing"),
        ("AA", False, "the pin thread"),
        ("Aa", None, "worker 1"),
        ("Aaa", True, "worker 1 or 2"),  # the other may be noted, too
        ("EA", None, "nothing"),
        ("eA", None, "nothing"),
        ("eA", False, "the pin thread"),
        ("dA", None, "nothing"),
        ("dA", False, "the pin thread"),
        ("ea", None, "worker 1"),
        ("dea", True, "worker 2"),
        ("dd", None, "nothing"),
        ("dd", False, "the pin thread"),
        ("EE", False, "the pin thread"),
        ("ee", True, "nothing"),
        ("ed", False, "the pin thread"),
    )
)
WORDS = {"A": "ACTIVE", "a": "ACTIVE but ended", "E": "EXHAUSTED", "e": "EXHAUSTED and ended", "d": "DEAD"}
HEALTH_CAUSE = (
    "A worker counts as lost if it is ACTIVE and its process has ended, in whatever way: report it, note it as DEAD, "
    "and remove its own ending, all three. One that is DEAD was dealt with before. The pin thread counts whatever the "
    "workers are."
)


def checks_alone(answer: Answer) -> Finding | None:
    for (states, expected, pin), code in itertools.product(HEALTH, (-9, 0)):
        thread = {None: "", True: "; the pin thread is alive", False: "; the pin thread has ended"}[pin]
        call = f"check_health(iterator): its workers are {_in_words(states, code)}{thread}"
        watched = Watched(states, pin, code)
        tried = attempt(answer, call, functools.partial(watched.checked, answer, checked_health))
        right = [f"reports {expected}; noted as dead: {[int(expected[-1])] if expected[-1].isdigit() else []}"]
        if " or " in expected:
            right = [f"reports worker {k}; noted as dead: {noted}" for k in (1, 2) for noted in ([k], [1, 2])]
        if tried.value not in right:
            return tried.finding("a check of the health", " or ".join(right), HEALTH_CAUSE)
    for (number, states), code in itertools.product(((0, "aA"), (1, "Aa"), (0, "eA"), (1, "dee")), (-9, 0, 1)):
        watched, lost = Watched(states, None, code), states[number] == "a"
        call = f"worker_ended(iterator, {number}): its workers are {_in_words(states, code)}"
        ended = functools.partial(watched.checked, answer, functools.partial(noticed_end, number))
        tried = attempt(answer, call, ended)
        right = [f"reports {f'worker {number}' if lost else 'nothing'}; noted as dead: {[number] if lost else []}"]
        if tried.value not in right:
            return tried.finding("a check of the health", right[0], HEALTH_CAUSE)
    return None


def _in_words(states: str, code: int) -> str:
    ended = f" (exit code {code})" * (code >= 0 and not states.isupper())
    return ", ".join(WORDS[each] for each in states) + ended
