"""A simulated machine: processes, threads, pipes and a clock, all in one real thread.

Each simulated thread is a greenlet: it has its own stack, and runs until it hands over control. It does so in a single
place, `Machine.until`, which every call to the world goes through. So whatever the loader does between two such calls
is indivisible, and the scheduler alone decides what happens next: the same choices, the same run.

Principles
1. A step: the running thread makes a call to the world. The scheduler chooses the thread that runs next (perhaps after
   a fault); the call is carried out once the thread that made it is chosen.
2. By default the running thread continues until it has to wait; then comes the next one that can run, in the order in
   which the threads were made. A schedule lists the steps at which something else happens: see
   minidl.world.simulated.schedule.
3. Time stands still, except that a step takes a microsecond, and ten more in the user's code. When all threads wait,
   the clock jumps to the next timeout; if there is none, it is a deadlock.
4. A killed process runs nothing more, not even a `finally`. Its ends of pipes close; what it wrote stays.
5. What every real process has for itself (`OWN`) is switched together with the processes.

Legend
    thread   Thread(number=3, ...)     main is 0, then in the order in which they were made
    process  Process(number=1, ...)    the program is 0; `pid` is FIRST_PID + number
    ready    a function                whether what a thread waits for has happened; None: it waits for nothing
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import greenlet

from minidl.events import CLOCKED, LOADER
from minidl.laws import Event
from minidl.world.simulated.chance import Chance
from minidl.world.simulated.cores import SECOND, Cores
from minidl.world.simulated.faults import TERMINATED, inject
from minidl.world.simulated.processes import NO_LIMIT, OWN, Luggage, Memories, Process, Shared, Thread, contents

if TYPE_CHECKING:
    from minidl.world.simulated.simulation import Outcome

STEP = 1_000  # ns that a step takes: a loop that looks at the clock sees it move
BEGIN = 1 * SECOND  # what the clock shows when a run begins
GRACE = 1 * SECOND  # from the death of main to the forced end of a worker that has not noticed, as in the real world
LOADERS = "num_workers", "prefetch_factor", "in_order"  # its options that the events record


@dataclass(frozen=True)
class Options:
    """What kind of machine it is, and how long it may run: options of `simulate`."""

    capacity: int = 1 << 16  # of a pipe (bytes), as on Linux; a larger message takes several steps to write
    start_method: str = "fork"
    cpus: float = 2  # may be a fraction: other programs have the rest of the last core
    draws: bool = True  # False: all processes share their random numbers; faster, the same if a program draws none
    most_steps: int = 20_000  # a run that takes more is cut short, as endless
    environment: Mapping[str, str] | None = None  # the variables that a program finds there


def in_brief(kind: int, text: object) -> object:
    """What the laws need of an event's text."""
    return {name: getattr(text, name) for name in LOADERS} if kind == LOADER else True


class Machine:
    """One run of a program, whose first process has begun: `run` runs them all to their end."""

    def __init__(self, outcome: Outcome, options: Options, texts: Callable[[int, object], object]) -> None:
        """What is kept of an event's kind and text is what `texts` makes of them."""
        self.outcome, self.options, self.texts = outcome, options, texts
        self.schedule = outcome.schedule
        self.world: Any = None
        self.cores = Cores(self, options.cpus)
        self.hub = greenlet.getcurrent()
        # What is there
        self.processes: list[Process] = []
        self.threads: list[Thread] = []
        self.shared: list[Shared] = []  # pipes, flags, mailboxes
        self.memories: Memories = weakref.WeakValueDictionary()
        self.memory_numbers = itertools.count()
        self.luggage = Luggage()  # of the process that is being started
        # Where it stands
        self.clock = BEGIN  # ns
        self.step, self.most_steps = 0, options.most_steps
        self.running: Any = None  # a Thread
        self.alarms: list[tuple[int, Process]] = []  # (when, which) process is ended by force
        self.garbage: list[Any] = []  # see Fault.COLLECT
        # How it ends
        self.over = False  # no thread can run any more
        self.off = False  # the remaining stacks are being unwound

    # ---- processes and threads

    def life_of(self, process: Process) -> None:
        """The main thread of a process, from its first line to its exit."""
        code, run, process.run = 0, process.run, None
        try:
            run()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
        except (Exception, KeyboardInterrupt) as error:
            process.threads[0].error, code = error, 1
        try:
            while process.at_exit:  # the callback that was registered last comes first
                try:
                    process.at_exit.pop()()
                except Exception as error:  # changes nothing: neither the exit code nor whether the others are called
                    process.threads[0].error = error
            self.until()
        except (Exception, KeyboardInterrupt) as error:
            process.threads[0].error, code = error, 1
        for child in self.processes:  # multiprocessing terminates the remaining daemon processes
            if child.parent is process:
                self.end(child, -TERMINATED)
        self.end(process, code)

    def send_end(self, process: Process, exitcode: int) -> None:
        """Send a signal that ends a process. It still runs until its main thread is next chosen, and until then its
        sender finds it alive."""

        def handler(frame: Any) -> None:
            self.end(process, exitcode)
            self.until()  # never returns

        if not process.ended:
            process.threads[0].signals.appendleft(handler)

    def end(self, process: Process, exitcode: int) -> None:
        """End this process, now. (Its threads' stacks are kept as they are until the run is over.)"""
        if process.ended:
            return
        process.code, process.ended_at = exitcode, self.clock
        for thread in process.threads:
            thread.alive = False
        for end in list(process.ends):
            process.close(*end)
        for child in self.processes:
            if child.parent is process and child.watches_parent and not child.ended:
                self.alarms.append((self.clock + GRACE, child))
        parent = process.parent
        if parent is not None and not parent.ended:
            parent.threads[0].signals.extend(parent.on_child_exit)

    # ---- steps

    def until(self, ready: Callable[[], Any] | None = None, timeout: float | None = None) -> bool:
        """The running thread makes a call to the world, and other threads can run before this returns.

        With `ready` it waits until that is true, or `timeout` seconds are over, and returns whether it is true. A
        timeout of 0 asks without waiting. Raises what the handlers of signals raise: KeyboardInterrupt, say.
        """
        if self.off:
            raise greenlet.GreenletExit
        thread = self.running
        waits = timeout is None or timeout > 0
        deadline = NO_LIMIT if timeout is None else self.clock + int(timeout * SECOND)
        call: Any = None
        if self.schedule.compares:
            caller = sys._getframe(2)  # the line of the loader that asks for the service: where this thread is
            call = id(caller.f_code), caller.f_lasti
        while True:
            # What the scheduler looks at: whether this thread can run, and when its wait times out.
            thread.ready, thread.deadline, thread.timed_out = ready if waits else None, deadline, False
            chosen = self.choose()
            if chosen is not thread:
                self._switch_to(chosen)
            # This thread is chosen, as it is ready, its wait has timed out, or it has a signal to handle.
            thread.ready, timed_out = None, thread.timed_out
            if call is not None:
                thread.saw((call, timed_out, contents(thread.process.mapped)))
            if thread.signals:
                self._handle_signals(thread)
            is_ready = ready is None or bool(ready())
            if is_ready or timed_out or not waits:
                return is_ready

    def _switch_to(self, chosen: Thread | None) -> None:
        """Suspend the calling thread; return when it is chosen again. None: the run is over."""
        (self.hub if chosen is None else chosen.greenlet).switch()
        if self.off:
            raise greenlet.GreenletExit  # unwinds this thread's stack

    def _handle_signals(self, thread: Thread) -> None:
        interrupted: Any = sys._getframe()  # and from there to the program, which called the world
        while interrupted is not None and interrupted.f_globals["__name__"].startswith("minidl.world."):
            interrupted = interrupted.f_back
        while thread.signals:
            handler = thread.signals.popleft()
            handler(interrupted)  # may raise

    def choose(self) -> Thread | None:
        """Take a step: choose the thread that runs next, and make it the running one. None: the run is over."""
        self.step += 1
        self.clock += STEP
        for move in self.schedule.faults_at.get(self.step, ()):
            inject(self, move)
        self.outcome.endless = self.step > self.most_steps
        chosen = None if self.outcome.endless else self.schedule.choose(self) or self._wake()
        if chosen is None:
            self.over = True
        elif chosen is not self.running:
            self._enter(chosen)
        return chosen

    def next_able(self, after: int) -> Thread | None:
        """The first thread that can run, from number `after` on and then from the first."""
        count = len(self.threads)
        for number in range(after, after + count):
            thread = self.threads[number % count]
            if thread.can_run():
                return thread
        return None

    def _wake(self) -> Thread | None:
        """All threads wait: the clock jumps to the next timeout."""
        sleepers = [thread for thread in self.threads if thread.alive and thread.deadline >= 0]
        alarms = [(time, process) for time, process in self.alarms if not process.ended]
        first = min(sleepers, key=lambda thread: thread.deadline, default=None)
        if alarms and (first is None or alarms[0][0] < first.deadline):
            time, process = alarms[0]
            self.clock = max(self.clock, time)
            self.end(process, 1)
            return self.next_able(0) or self._wake()
        if first is None:
            self.outcome.deadlock = any(thread.alive for thread in self.threads)
            return None
        self.clock = max(self.clock, first.deadline)
        first.timed_out = True
        return first

    def _enter(self, thread: Thread) -> None:
        """Make it the running thread, and put in place what its process has for itself."""
        before, process = self.running.process if self.running is not None else None, thread.process
        if before is not process:
            for place, (owner, name, _) in enumerate(OWN):
                if before is not None:
                    before.own[place] = getattr(owner, name)
                setattr(owner, name, process.own[place])
                process.own[place] = None  # or it would be kept when it is replaced
            if self.options.draws and before is not None and process.chance is not None:
                before.chance = Chance.now()
                process.chance.put()
        self.running = thread

    def run(self) -> None:
        """Run until all threads have ended, or none can run."""
        self._enter(self.threads[0])
        chosen: Thread | None = self.running
        while chosen is not None:
            chosen.greenlet.switch()  # returns when a thread has ended, or the run is over
            chosen = None if self.over else self.choose()

    def switch_off(self) -> None:
        """Unwind the remaining stacks. What that still runs (`finally`, `__del__`) finds the world switched off."""
        self.off = True
        for thread in self.threads:
            while not thread.greenlet.dead:
                thread.greenlet.throw(greenlet.GreenletExit)
        # Reference cycles are broken by hand, or Python's collector would have to find them after every run.
        for each in (*self.threads, *self.processes):
            each.__dict__ = {"machine": self}
        self.__dict__ = {"off": True}  # all that is asked of it by what still refers to it

    def state(self) -> int:
        """A hash of the state of this run, except for the time."""
        threads = tuple([(each.history, each.alive, len(each.signals), each.timed_out) for each in self.threads])
        codes = tuple([process.code for process in self.processes]), len(self.garbage)
        shared = tuple([thing.state() for thing in self.shared])
        rest = contents(self.memories), str([due.__qualname__ for each in self.threads for due in each.signals])
        return hash((self.running.number, threads, codes, shared, rest))

    # ---- events

    def record(self, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object) -> None:
        """minidl.events' recorder. Each event has a time of its own: sorting by time keeps the order."""
        if self.off or self.running is None:
            return
        self.clock += 1
        if self.schedule.compares:
            self.running.saw((kind, epoch_id, task, worker, value))
        if kind < CLOCKED:
            value = self.running.cpu
        kept = text is not None and self.texts(kind, text)
        event = Event(self.clock, self.running.number, kind, epoch_id, task, worker, queue, value, kept)
        self.outcome.events.append(event)

    def swallow(self, unraisable: Any) -> None:
        """sys.unraisablehook: keep what Python would print."""
        if not self.off:
            self.outcome.swallowed.append(f"{unraisable.object!r}: {unraisable.exc_value!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return current_machine, ()  # a worker's arguments include it, as the events' recorder: there is one machine


_running: Machine | None = None


def current_machine() -> Machine:
    """The machine that is running."""
    assert _running is not None, "no simulation is running"
    return _running


def is_running() -> bool:
    return _running is not None
