"""A machine that is not there: processes, threads, pipes and a clock, all in one thread of the real one.

Each simulated thread is a greenlet: a stack of its own, that runs until it hands over control itself. It does so in one
place, `Machine.until`, which every call to the world goes through. So whatever the loader does between two such calls
is indivisible, and what happens next is a choice of the scheduler and of nobody else: the same choices, the same run.

Principles
1. A step: the running thread comes to a call to the world. The scheduler says who goes on (perhaps after a fault); the
   call is carried out when its thread is chosen.
2. By default the running thread goes on until it has to wait; then the next one that need not, in the order in which
   the threads were made. A schedule says at which steps something else happens: see minidl.world.simulated.schedule.
3. Time stands still, but for a microsecond a step, and ten more in the user's code. When everybody waits, the clock
   jumps to the next timeout; if there is none, it is a deadlock.
4. A process that was killed runs nothing more, no `finally` either. Its ends of the pipes close, what it wrote stays.
5. What is one for each process in the real world (`OWN`) is put in place when a process goes on.

Legend
    thread   Thread(number=3, ...)     main is 0, then in the order in which they were made
    process  Process(number=1, ...)    the program is 0; `pid` is FIRST_PID + number
    ready    a function                whether what a thread waits for has happened; None: it waits for nothing
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import greenlet

from minidl.events import CLOCKED
from minidl.world.simulated.chance import Chance
from minidl.world.simulated.cores import SECOND, Cores
from minidl.world.simulated.faults import TERMINATED, strike
from minidl.world.simulated.processes import OWN, End, Pipe, Process, Thread
from minidl.world.simulated.schedule import Schedule

STEP = 1_000  # ns that a step takes: whoever looks at the clock in a loop sees it move
BEGIN = 1 * SECOND  # what the clock shows when a run begins
GRACE = 1 * SECOND  # between the death of main and the forced end of a worker that does not look, as in the real world
TOO_MANY = 20_000  # steps: a run that takes more gets nowhere, unless it is known to be long


class Machine:
    """One run. `boot` makes the first process; `run` lets it all happen."""

    def __init__(
        self, schedule: Schedule, capacity: int, cores: float, texts: bool, draws: bool, most_steps: int = TOO_MANY
    ) -> None:
        """`capacity` of a pipe in bytes; as many `cores` for what computes; with `texts` the events' texts are kept;
        with `draws` every process has random numbers of its own."""
        self.schedule, self.capacity, self.texts, self.draws = schedule, capacity, texts, draws
        self.most_steps = most_steps
        self.hub = greenlet.getcurrent()
        self.clock = BEGIN  # ns
        self.step = 0
        self.over = False  # nobody can go on
        self.off = False  # the stacks that are left are being let go
        self.processes: list[Process] = []
        self.threads: list[Thread] = []
        self.running: Any = None  # the thread that runs
        self.world: Any = None
        self.pipes: list[Pipe] = []
        self.flags: list[bool] = []
        self.makers: list[Process] = []  # of the flags
        self.quiet: set[Process] = set()  # those that exit with 0 when their parent terminates them
        self.in_transit: list[End] = []  # ends of pipes that are pickled for a process to be started
        self.functions: list[Any] = []  # that were copied into another process
        self.received: list[Any] = []  # and what became of them there
        self.alarms: list[tuple[int, Process]] = []  # when a process is ended by force
        self.cores: Any = Cores(self, cores)
        self.swallowed: list[str] = []  # what was raised where Python can only print it: in a __del__
        self.garbage: list[Any] = []  # see Fault.COLLECT
        self.events: list[tuple[Any, ...]] = []  # time, thread, kind, epoch_id, task, worker, queue, value, text
        self.struck_at = -1  # when the last fault did
        self.deadlock = False
        self.endless = False

    # ---- processes and threads

    def new_process(self, name: str, run: Callable[[], None], inherits: list[End]) -> Process:
        parent = self.running.process if self.running is not None else None
        process = Process(len(self.processes), parent, name)
        self.processes.append(process)
        if self.draws and parent is not None:
            process.chance = Chance.now().forked(process.number)
        for end in inherits:
            process.open(*end)
        self.new_thread(process, "MainThread", lambda: self._life(process, run))
        return process

    def new_thread(self, process: Process, name: str, run: Callable[[], None]) -> Thread:
        def guarded() -> None:
            try:
                run()
            except greenlet.GreenletExit:
                raise
            except BaseException as error:  # Python prints it, and the process goes on
                thread.error = error
            thread.alive = False

        thread = Thread(len(self.threads), process, name, guarded, self.hub)
        process.threads.append(thread)
        self.threads.append(thread)
        return thread

    def _life(self, process: Process, run: Callable[[], None]) -> None:
        """The main thread of a process, from its first line to its exit."""
        code = 0
        try:
            run()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
        except (Exception, KeyboardInterrupt) as error:
            process.threads[0].error, code = error, 1
        try:
            while process.at_exit:
                self._call_at_exit(process)
            self.until()
        except (Exception, KeyboardInterrupt) as error:
            process.threads[0].error, code = error, 1
        for child in self.processes:  # multiprocessing ends the daemon processes that are left
            if child.parent is process:
                self.end(child, -TERMINATED)
        self.end(process, code)

    def _call_at_exit(self, process: Process) -> None:
        """The last callback that is left. An error in it is printed, and changes nothing: neither the exit code nor
        that the others come. Ctrl-C breaks it all off."""
        try:
            process.at_exit.pop()()
        except Exception as error:
            process.threads[0].error = error

    def send_end(self, process: Process, exitcode: int) -> None:
        """A signal that ends a process is on its way: it may go on until its main thread's turn comes, and who has sent
        it may look before that."""

        def handler(frame: Any) -> None:
            self.end(process, exitcode)
            self.until()  # for ever

        if not process.ended:
            process.threads[0].signals.appendleft(handler)

    def end(self, process: Process, exitcode: int) -> None:
        """This process is no more, from here on. (Its stacks are kept as they are until the run is over.)"""
        if process.ended:
            return
        process.exitcode, process.ended_at = exitcode, self.clock
        for thread in process.threads:
            thread.alive = False
        for end in list(process.ends):
            process.close(*end)
        for child in self.processes:
            if child.parent is process and child.watches_parent and not child.ended:
                self.alarms.append((self.clock + GRACE, child))
        parent = process.parent
        if parent is not None and not parent.ended and parent.on_child_exit is not None:
            parent.threads[0].signals.append(parent.on_child_exit)

    # ---- steps

    def until(self, ready: Callable[[], Any] | None = None, timeout: float | None = None) -> bool:
        """The running thread comes to a call to the world: others may go on first. It goes on itself once `ready()`,
        or when `timeout` seconds are over. Returns whether it is ready."""
        if self.off:
            raise greenlet.GreenletExit
        me = self.running
        waits = timeout is None or timeout > 0
        deadline = -1 if timeout is None else self.clock + int(timeout * SECOND)
        caller = sys._getframe(2)
        place = id(caller.f_code), caller.f_lasti
        while True:
            me.ready, me.deadline, me.timed_out = ready if waits else None, deadline, False
            chosen = self.choose()
            if chosen is not me:
                (self.hub if chosen is None else chosen.greenlet).switch()
                if self.off:
                    raise greenlet.GreenletExit
            in_time, me.ready = not me.timed_out, None
            me.saw((place, in_time))
            while me.signals:
                me.signals.popleft()(outside(sys._getframe(1)))
            if not in_time or not waits:
                return bool(ready and ready())
            if ready is None or ready():
                return True

    def choose(self) -> Thread | None:
        """Who goes on: it is made the running one. None: the run is over."""
        self.step += 1
        self.clock += STEP
        for move in self.schedule.strikes.get(self.step, ()):
            strike(self, move)
        self.endless = self.step > self.most_steps
        chosen = None if self.endless else self.schedule.choose(self) or self._wake()
        if chosen is None:
            self.over = True
        elif chosen is not self.running:
            self._enter(chosen)
        return chosen

    def next_able(self, after: int) -> Thread | None:
        """The first thread from number `after` on, round and round, that need not wait."""
        count = len(self.threads)
        for number in range(after, after + count):
            thread = self.threads[number % count]
            if thread.can_run():
                return thread
        return None

    def _wake(self) -> Thread | None:
        """Everybody waits: the clock jumps to the next timeout."""
        sleepers = [thread for thread in self.threads if thread.alive and thread.deadline >= 0]
        alarms = [(time, process) for time, process in self.alarms if not process.ended]
        first = min(sleepers, key=lambda thread: thread.deadline, default=None)
        if alarms and (first is None or alarms[0][0] < first.deadline):
            time, process = alarms[0]
            self.clock = max(self.clock, time)
            self.end(process, 1)
            return self.next_able(0) or self._wake()
        if first is None:
            self.deadlock = any(thread.alive for thread in self.threads)
            return None
        self.clock = max(self.clock, first.deadline)
        first.timed_out = True
        return first

    def _enter(self, thread: Thread) -> None:
        """Put in place what belongs to its process."""
        before, process = self.running.process if self.running is not None else None, thread.process
        if before is not process:
            for place, (owner, name, _) in enumerate(OWN):
                if before is not None:
                    before.own[place] = getattr(owner, name)
                setattr(owner, name, process.own[place])
            if self.draws and before is not None and process.chance is not None:
                before.chance = Chance.now()
                process.chance.put()
        self.running = thread

    def run(self) -> None:
        """Until everybody has ended, or nobody can go on."""
        self._enter(self.threads[0])
        chosen: Thread | None = self.running
        while chosen is not None:
            chosen.greenlet.switch()  # it comes back here when a thread has ended, or when the run is over
            chosen = None if self.over else self.choose()

    def switch_off(self) -> None:
        """Let go of the stacks that are left. What they still run (`finally`, `__del__`) finds no world any more."""
        self.off = True
        for thread in self.threads:
            while not thread.greenlet.dead:
                thread.greenlet.throw(greenlet.GreenletExit)
        # All that refers to each other here is let go by hand: Python's collector would have to find it, in every run.
        for thread in self.threads:
            thread.greenlet = thread.ready = thread.error = None
            thread.signals.clear()
        for process in self.processes:
            process.on_child_exit = process.on_interrupt = None
            process.threads.clear()
            process.at_exit.clear()
        for held in (self.garbage, self.pipes, self.alarms, self.makers, self.functions, self.received):
            held.clear()
        self.world = self.running = self.cores = None

    def state(self) -> int:
        """A hash of the state that this run is in, but for the time."""
        threads = tuple([(each.history, each.alive, len(each.signals), each.timed_out) for each in self.threads])
        pipes = tuple([(len(pipe.data), pipe.readers, pipe.writers) for pipe in self.pipes])
        codes = tuple([process.exitcode for process in self.processes])
        return hash((self.running.number, threads, pipes, codes, tuple(self.flags), len(self.garbage)))

    # ---- events

    def record(self, kind: int, epoch_id: int, task: int, worker: int, queue: int, value: int, text: object) -> None:
        """What minidl.events hands on. Each event has a time of its own, so that sorting by time is the order."""
        if self.off or self.running is None:
            return
        self.clock += 1
        if kind < CLOCKED:
            value = self.running.cpu
        kept = text if self.texts else text is not None
        self.events.append((self.clock, self.running.number, kind, epoch_id, task, worker, queue, value, kept))

    def swallow(self, unraisable: Any) -> None:
        """What Python does with an exception that nobody can catch: here it is kept, and not printed."""
        if not self.off:
            self.swallowed.append(f"{unraisable.object!r}: {unraisable.exc_value!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return current_machine, ()  # pickled into a worker's arguments, as the events' recorder: there is one machine


def outside(frame: Any) -> Any:
    """The first frame that is not the simulated world's: where a signal has interrupted the program."""
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("minidl.world.simulated"):
        frame = frame.f_back
    return frame


def chain(look: Callable[[Any], None], previous: Any) -> Callable[[Any], None]:
    """A signal handler that calls the one before it, too; unless that is the same."""
    if previous is None or getattr(previous, "look", previous) is look:
        return previous or look

    def handler(frame: Any) -> None:
        look(frame)
        previous(frame)

    handler.look = look  # type: ignore[attr-defined]
    return handler


_running: Machine | None = None


def current_machine() -> Machine:
    """The machine that runs."""
    assert _running is not None, "no simulation is running"
    return _running


def install(machine: Machine | None) -> None:
    global _running
    _running = machine


def is_running() -> bool:
    return _running is not None
