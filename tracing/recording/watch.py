"""Watches its own process while it records: a thread that wakes a few times a second, and notes that the process is
alive, how much CPU time and memory it has used, and, twice a second, which lines its threads are in, and how much it
has read.

What it guarantees:
1. It is in none of threading's lists, takes no signals, and is gone while the process forks.
2. It takes about a thousandth of a core for samples, and seven for looks at the stacks: it waits a thousand times as
   long as a sample has cost, and between looks 150 times as long as a look, but at most a second. To learn how much
   memory there is takes longer in a larger process: at most a hundredth of a core.
3. If it fails, only it ends. It also ends in a worker whose main is gone.

It needs Python's lock. While C code holds that, there are no samples; and fewer while a thread gives it up often, but
only for a moment each time, as torch's operations do: the one that waits is woken, and finds it taken again.
`trace.samples` and `trace.stacks` read what it writes.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import json
import linecache
import os
import signal
import sys
import threading
import time
from pathlib import Path

from tracing.recording import file_format as fmt
from tracing.recording import linux
from tracing.recording.loader_text import LIBRARY
from tracing.recording.own_files import OwnFile

_sleep = time.sleep  # a program, or a test of one, may replace that one

SECOND = 1_000_000_000
OFTEN, OFTEN_FOR = SECOND // 10, 60 * SECOND  # ns between two samples, and for how long ...
RARELY = WEIGH = SECOND  # ... and after that; and between two looks at the memory, at least
COST, LOOK_COST, WEIGHING_COST = 1000, 150, 100  # times the CPU time of a sample, a look, a weighing: see 2
FIRST_LOOK, LOOK = SECOND // 8, SECOND // 2  # ns until the first look at the stacks, and at most between later ones
FRAMES, THREADS = 50, 32  # that are noted, the innermost and the first
MOST = 1 << 23  # bytes of stacks: then the file is begun again
# ns that a look has waited for Python's lock, if it is this late: for a call that does not give it up, such as
# gc.collect(), and that is what it sees.
LATE = SECOND // 50
PATIENCE = 1.0  # seconds for the thread to end: its disk may hang


class Watch:
    """Watches this process, whose events are written to the file `events`."""

    def __init__(self, events: Path) -> None:
        """Begin. Raises OSError, and RuntimeError if there can be no more threads."""
        self._samples = OwnFile(fmt.samples_file(events))
        self._stacks = OwnFile(fmt.stacks_file(events))
        self._stacks.let_go()
        self._parent = os.getppid()
        # Only one process of a trace samples the machine.
        self._is_main = fmt.description(events.parent).get("pid") == os.getpid()
        self._begun, self._look = time.monotonic_ns(), FIRST_LOOK
        self._memory = self._weigh = 0  # bytes, and when to look at that again (ns)
        self._read = linux.bytes_read()
        self.go_on()
        _watches.add(self)

    def go_on(self) -> None:
        """Start the thread. Raises RuntimeError if there can be no more threads."""
        self._wake, self._ended, self._thread = _thread.allocate_lock(), _thread.allocate_lock(), 0
        self._wake.acquire()
        self._ended.acquire()
        _thread.start_new_thread(self._run, ())
        self._runs = True

    def pause(self) -> None:
        """End the thread. Waits until the system no longer counts it: from that count Python warns of forks in a
        process with threads. (Only Linux can be asked: elsewhere it may warn.)"""
        if self._runs:
            self._runs = False
            self._wake.release()
            deadline = time.monotonic() + PATIENCE
            if self._ended.acquire(timeout=PATIENCE):
                while os.path.exists(f"/proc/self/task/{self._thread}") and time.monotonic() < deadline:
                    _sleep(1e-5)

    def stop(self) -> None:
        """End for good. Can be called twice."""
        with _forking:
            if self in _watches:
                self.pause()
                with contextlib.suppress(OSError):
                    self._sample()
                self.forget()

    def forget(self) -> None:
        """Hold no file. (In a forked child its thread is not there.)"""
        _watches.discard(self)
        self._samples.let_go()

    # ---- the thread

    def _run(self) -> None:
        with contextlib.suppress(Exception):
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the program's threads
            self._thread = threading.get_native_id()
            self._watch()
        self._ended.release()

    def _watch(self) -> None:
        wait, due, spent = 0, time.monotonic_ns(), time.thread_time_ns()
        while not self._wake.acquire(timeout=wait / SECOND):
            if not self._is_main and os.getppid() != self._parent:
                return
            now = time.monotonic_ns()
            age, is_late = now - self._begun, now - due > LATE
            if age >= self._look:
                self._note_stacks(*((now, _stacks()) if is_late else _at_any_moment()))
                self._read = linux.bytes_read()  # after the look, since it gives up Python's lock
                took, spent = time.thread_time_ns() - spent, time.thread_time_ns()
                self._look = age + max(min(age // 4, LOOK), min(LOOK_COST * took, SECOND))
            self._sample()
            sampled, spent = time.thread_time_ns() - spent, time.thread_time_ns()
            if now >= self._weigh:
                # Without the pages of mapped files, which the system takes back.
                self._memory = linux.memory(os.getpid(), "Anonymous|Pss_Shmem" if self._is_main else "Pss_Anon")
                took, spent = time.thread_time_ns() - spent, time.thread_time_ns()
                self._weigh = now + max(WEIGH, WEIGHING_COST * took)
            wait = max(OFTEN if age < OFTEN_FOR else RARELY, min(COST * sampled, SECOND))
            due = time.monotonic_ns() + wait

    def _sample(self) -> None:
        main = _cpu(threading.main_thread().ident or 0)
        children = int(sum(os.times()[2:4]) * SECOND)
        machine = linux.cores() if self._is_main else (-1, -1)
        used = (time.process_time_ns(), main, children, *machine)
        self._samples.append(fmt.SAMPLE.pack(time.monotonic_ns(), os.getpid(), *used, self._read, self._memory))

    def _note_stacks(self, now: int, found: list[Thread]) -> None:
        threads = [{"name": name, "cpu": cpu, "frames": _with_source(lines)} for name, cpu, lines in found]
        with self._stacks.opened() as file:
            if os.fstat(file.fileno()).st_size > MOST:
                file.truncate(0)  # the last is read most
            file.write(json.dumps({"time": now, "pid": os.getpid(), "threads": threads}).encode() + b"\n")


# ---- stacks

Line = tuple[str, int, str]  # file, line, function
Thread = tuple[str, int, list[Line]]  # name, ns of a core that it has used (-1: unknown), its lines
PROMPT = 1e-5  # seconds until Python's lock is taken from the thread that has it


def _at_any_moment() -> tuple[int, list[Thread]]:
    """When, and the stacks. Python leaves its lock to a thread for 5 ms, unless that gives it up: whatever waits for it
    then sees the thread where it gives it up (in numpy, or at a file), however little time it spends there."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(PROMPT)
    try:
        _sleep(time.monotonic_ns() % 5_000 / 1e6)  # until a moment that has nothing to do with the lock
    finally:
        if sys.getswitchinterval() <= PROMPT:  # else the program has set it meanwhile
            sys.setswitchinterval(interval)
    return time.monotonic_ns(), _stacks()  # whole, before another thread has the lock again


def _stacks() -> list[Thread]:
    """Each of Python's threads, with its lines, innermost first; the main thread is the first."""
    names = {each.ident: each.name for each in threading.enumerate()}
    main, own = threading.main_thread().ident, _thread.get_ident()
    # The program's finalisers must not run in this thread: no garbage collection here, and the frames are let go before
    # their owners can leave them, which takes Python's lock.
    collects = gc.isenabled()
    gc.disable()
    try:
        frames = sorted(sys._current_frames().items(), key=lambda each: each[0] != main)
        found = [
            (names.get(ident, f"thread {ident}"), _cpu(ident), _lines(frame)) for ident, frame in frames if ident != own
        ]
        del frames
    finally:
        if collects:
            gc.enable()
    return found[:THREADS]


def _cpu(ident: int) -> int:
    """What a thread has used of a core (ns); -1: the system has no such clock."""
    with contextlib.suppress(AttributeError, OSError):
        return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
    return -1


def _lines(frame: object) -> list[Line]:
    lines: list[Line] = []
    while frame is not None and len(lines) < FRAMES:
        code = frame.f_code  # type: ignore[attr-defined]
        lines.append((code.co_filename, frame.f_lineno or 0, getattr(code, "co_qualname", code.co_name)))  # type: ignore[attr-defined]
        frame = frame.f_back  # type: ignore[attr-defined]
    return lines


def _with_source(lines: list[Line]) -> list[tuple[str, int, str, str]]:
    """With their text, those of libraries but the innermost without: they have many files, and few are ever read."""
    found = []
    for number, line in enumerate(lines):
        text = "" if number and LIBRARY.search(line[0]) else linecache.getline(line[0], line[1]).strip()
        found.append((*line, text))
    return found


# ---- forks

_watches: set[Watch] = set()
# Held from before a fork until after it: two threads may fork at once. Reentrant, since a signal handler may fork
# meanwhile.
_forking = threading.RLock()


def _before_fork() -> None:
    _forking.acquire()
    for watch in list(_watches):
        watch.pause()


def _after_fork() -> None:
    for watch in list(_watches):
        with contextlib.suppress(RuntimeError):
            watch.go_on()
    _forking.release()


def _after_fork_in_child() -> None:
    for watch in list(_watches):
        watch.forget()
    _forking.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
