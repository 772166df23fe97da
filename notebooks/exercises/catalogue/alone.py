"""Exercises 12 and 13: a learner's functions called alone, on what has only the fields in the legend. What they
call is written down, and may raise."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from minidl import deaths, shutdown
from minidl.shutdown import PATIENCE
from minidl.states import WorkerState
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import attempt
from notebooks.exercises.exercise import Finding


@contextlib.contextmanager
def instead(answer: Answer, module: Any, **functions: Any) -> Iterator[None]:
    """These functions in place of minidl's, for the answer and for minidl."""
    places = [(names, name) for names in (vars(module), answer.names) for name in functions if name in names]
    before = [names[name] for names, name in places]
    for names, name in places:
        names[name] = functions[name]
    try:
        yield
    finally:
        for (names, name), old in zip(places, before, strict=True):
            names[name] = old


# ---- exercise 13

NEVER = math.inf


@dataclass
class Loader:
    """An iterator that is to be shut down. Its workers end so many seconds after they were told to."""

    ends: tuple[float, ...]
    raises_in: str = ""  # this step, or a join
    error: type[BaseException] = KeyboardInterrupt
    own: bool = True  # it was built by this process
    pin_takes: float = 0.0  # seconds until the pin thread has ended
    did: list[str] = field(default_factory=list)
    now: float = 100.0
    told: dict[int, float] = field(default_factory=dict)

    def iterator(self) -> Any:
        return SimpleNamespace(
            _shutdown=False,
            _owner_pid=1 if self.own else 2,
            _epoch_id=7,
            _task_info={},
            _joined=set(),
            _world=SimpleNamespace(pid=lambda: 1, now=lambda: self.now),
            _workers=[self.worker(k) for k in range(len(self.ends))],
            _workers_done_event=SimpleNamespace(
                set=lambda: self.does("sets the done event"), is_set=lambda: "sets the done event" in self.did
            ),
        )

    def worker(self, number: int) -> Any:
        def join(timeout: float | None = None) -> None:
            self.does("", "join")
            until = self.told.get(number, NEVER) + self.ends[number]
            self.now = max(self.now, min(until, self.now + (NEVER if timeout is None else timeout)))

        def is_alive() -> bool:
            return self.now < self.told.get(number, NEVER) + self.ends[number]

        class Worker:
            exitcode = property(lambda self: None if is_alive() else 0)

        worker: Any = Worker()
        worker.join, worker.is_alive = join, is_alive
        return worker

    def does(self, what: str, step: str = "") -> None:
        if what:
            self.did.append(what)
        self.now += self.pin_takes if what == "stop_pin_thread" else 0.0
        if self.raises_in and self.raises_in in (what, step):
            self.raises_in = ""
            raise self.error

    def tell(self, iterator: Any, worker_id: int) -> None:
        self.told.setdefault(worker_id, self.now)
        self.does(f"tells worker {worker_id} to stop", "tell_to_stop")

    def shut_down(self, answer: Answer) -> list[str]:
        steps = ("stop_pin_thread", "use_force", "close_queues", "end_pin_thread")
        recorded = {step: lambda _, step=step: self.does(step) for step in steps}
        signals = SimpleNamespace(unwatch=lambda _: self.does("signals.unwatch"))
        iterator = self.iterator()
        with instead(answer, shutdown, tell_to_stop=self.tell, signals=signals, **recorded):
            for _ in range(2):
                try:
                    shutdown.shut_down(iterator)
                except BaseException as error:
                    if not isinstance(error, self.error):
                        raise
                    self.did.append(f"raises {type(error).__name__}")
        return self.did


def _in_order(loader: Loader, answer: Answer) -> list[str]:
    """What the shutdown does; the workers may be told in any order."""
    did = [each for each in loader.shut_down(answer) if each != "end_pin_thread"]
    told = sorted({each for each in did if each.startswith("tells")})  # a second call is harmless
    first = next((k for k, each in enumerate(did) if each.startswith("tells")), len(did))
    rest = [each for each in did if not each.startswith("tells")]
    return [*rest[:first], *told, *rest[first:], f"after {min(loader.now, 1e9) - 100.0:.1f} s"]


def _after_an_error(loader: Loader, answer: Answer) -> list[str]:
    """What must be done whatever was raised."""
    step = loader.raises_in
    did = loader.shut_down(answer)
    last = [each for each in did if each in ("use_force", "close_queues", "signals.unwatch") or "raises" in each]
    return ["end_pin_thread"] * (step == "stop_pin_thread" and "end_pin_thread" in did) + last


def _in_the_last_steps(loader: Loader, answer: Answer) -> list[str]:
    """Main must stop watching. (Whether step 5 is done after an exception in step 4 is left open.)"""
    return sorted({each for each in loader.shut_down(answer) if each == "signals.unwatch" or "raises" in each})


AT = ("stop_pin_thread", "sets the done event", "tell_to_stop", "join")
ENDINGS: tuple[tuple[str, Callable[[Loader, Answer], list[str]], Callable[[], Loader]], ...] = (
    ("3 workers, which end within a second; called twice", _in_order, lambda: Loader((0.1, 0.3, 0.2))),
    ("3 workers, which end after 2, 3 and 4 s", _in_order, lambda: Loader((2.0, 3.0, 4.0))),
    ("2 workers; the first never ends", _in_order, lambda: Loader((NEVER, 0.5))),
    ("2 workers, which have ended before", _in_order, lambda: Loader((-NEVER, -NEVER))),
    (
        "a pin thread that takes 4 s to stop; 2 workers, which end 2 and 9 s after they were told",
        _in_order,
        lambda: Loader((2.0, 9.0), pin_takes=4.0),
    ),
    ("an iterator that another process built", _in_order, lambda: Loader((0.1, 0.1), own=False)),
    *(
        (
            f"{error.__name__} in the middle: {step}",
            _after_an_error,
            lambda step=step, error=error: Loader((0.1, 0.1), step, error),
        )
        for step, error in itertools.product(AT, (KeyboardInterrupt, OSError, SystemExit))
    ),
    (
        "KeyboardInterrupt in the middle: use_force",
        _in_the_last_steps,
        lambda: Loader((0.1, 0.1), "use_force"),
    ),
)
SHUTDOWN_CAUSE = (
    f"Each of the five steps is done once, in order, also when something raises; all workers together have {PATIENCE} "
    "s; a second call, or one in another process, does nothing."
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


@dataclass
class Watched:
    """An iterator whose workers have these states, and are alive or not; and its pin thread: None for none."""

    states: str  # A: ACTIVE, E: EXHAUSTED, D: DEAD; in capitals if alive
    pin: bool | None = None
    exitcode: int | None = -9  # of those that have ended
    failed: list[str] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)

    def iterator(self) -> Any:
        states = {"a": WorkerState.ACTIVE, "e": WorkerState.EXHAUSTED, "d": WorkerState.DEAD}
        return SimpleNamespace(
            _workers=[self.worker(each) for each in self.states],
            _workers_status=[states[each.lower()] for each in self.states],
            _ending_of=list(range(len(self.states))),
            _endings=SimpleNamespace(remove=self.remove),
            _pin_memory_thread=None if self.pin is None else SimpleNamespace(is_alive=lambda: self.pin),
            _failure=None,
            _epoch_id=7,
        )

    def worker(self, state: str) -> Any:
        return SimpleNamespace(is_alive=state.isupper, exitcode=None if state.isupper() else self.exitcode)

    def remove(self, ending: int) -> None:
        if ending in self.removed or self.states[ending].lower() == "d":
            raise KeyError(f"the ending of worker {ending} was removed before")
        self.removed.append(ending)

    def fail(self, iterator: Any, what: Any) -> None:
        self.failed.append("the pin thread" if isinstance(what, str) else f"worker {what}")
        raise RuntimeError(self.failed[-1])

    def checked(self, answer: Answer, check: Callable[[Any], Any]) -> str:
        """What is reported, and of which workers it is then noted that they are dead."""
        iterator = self.iterator()
        with instead(answer, deaths, fail=self.fail, fail_for_death=self.fail), contextlib.suppress(RuntimeError):
            check(iterator)
        noted = [k for k, each in enumerate(iterator._workers_status) if each is WorkerState.DEAD]
        new = [k for k in noted if self.states[k].lower() != "d"]
        matter = [k for k in new if self.states[k] == "a"]  # a worker whose stream had ended may be noted, or not
        amiss = " (noted, but its ending was not removed, or the other way round)" * (sorted(self.removed) != new)
        moved = " (and _ending_of was changed)" * (iterator._ending_of != list(range(len(self.states))))
        return f"reports {' and '.join(self.failed) or 'nothing'}; noted as dead: {matter}{amiss}{moved}"


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
        tried = attempt(answer, call, functools.partial(watched.checked, answer, _checked))
        right = [f"reports {expected}; noted as dead: {[int(expected[-1])] if expected[-1].isdigit() else []}"]
        if " or " in expected:
            right = [f"reports worker {k}; noted as dead: {noted}" for k in (1, 2) for noted in ([k], [1, 2])]
        if tried.value not in right:
            return tried.finding("a check of the health", " or ".join(right), HEALTH_CAUSE)
    for (number, states), code in itertools.product(((0, "aA"), (1, "Aa"), (0, "eA"), (1, "dee")), (-9, 0, 1)):
        watched, lost = Watched(states, None, code), states[number] == "a"
        call = f"worker_ended(iterator, {number}): its workers are {_in_words(states, code)}"
        ended = functools.partial(watched.checked, answer, functools.partial(_ended, number))
        tried = attempt(answer, call, ended)
        right = [f"reports {f'worker {number}' if lost else 'nothing'}; noted as dead: {[number] if lost else []}"]
        if tried.value not in right:
            return tried.finding("a check of the health", right[0], HEALTH_CAUSE)
    return None


def _in_words(states: str, code: int) -> str:
    ended = f" (exit code {code})" * (code >= 0 and not states.isupper())
    return ", ".join(WORDS[each] for each in states) + ended


def _checked(iterator: Any) -> None:
    deaths.check_health(iterator)


def _ended(number: int, iterator: Any) -> None:
    deaths.worker_ended(iterator, number)
