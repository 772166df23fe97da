"""The real world: a thin layer over multiprocessing, threading and torch's pickler.

Where the standard library's own object will do, it is used. Three things are ours, because the library's
would hang or miss a death:
- a Flag is a pipe with a byte in it: `multiprocessing.Event` has a lock that a process can hold when it dies;
- the end of a process is watched through a pidfd where the system has one: multiprocessing's sentinel is a
  pipe, and stays silent while any other process has inherited its other end;
- a worker is ended a second after main even if it is too busy to notice.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import multiprocessing.util
import os
import queue
import selectors
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing  # teaches ForkingPickler to send tensors through shared memory

from minidl.world.real_memory import Descriptor, MappedMemory, SocketReader, SocketWriter, is_ready, page_locked

GRACE = 1.0  # seconds from the death of main to the forced end of a busy worker


_before_fork: weakref.WeakSet[Any] = weakref.WeakSet()
_on_exit: set[tuple[int, Callable[[], None]]] = set()  # (pid, call): the callbacks registered by on_exit


class PipeFlag:
    """A flag that processes share: set when there is a byte in the pipe. The byte is never read, so the flag stays set
    for all of them, and waiting for the flag is waiting for the pipe."""

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)
        self._set = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        if not self._set:
            os.write(self._writer.fileno(), b"1")
            self._set = True  # last: if Ctrl-C comes before it a second byte may be written, which is harmless

    def is_set(self) -> bool:
        return self._set or is_ready(self._reader)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_reader": self._reader, "_set": self._set}  # only its maker can set it


class SelectorWaiter(selectors.DefaultSelector):
    """Waits with the system's best call (epoll, kqueue). A thing is registered once, not at every wait as in
    `multiprocessing.connection.wait`: a wait takes microseconds however many workers there are."""

    def add(self, thing: Any, label: Any) -> None:
        self.register(thing, selectors.EVENT_READ, label)

    remove: Any = selectors.DefaultSelector.unregister

    def wait(self, timeout: float | None) -> list[Any]:
        return [key.data for key, _ in self.select(timeout)]


def _tell_of_fork() -> None:
    # (A list of the set's references is made in one step, whatever other threads add.)
    for thing in [each for ref in list(_before_fork.data) if (each := ref()) is not None]:  # type: ignore[attr-defined]
        thing.before_fork()


os.register_at_fork(before=_tell_of_fork)


def _exit_after(parent: Any) -> None:
    """The thread behind `RealWorld.parent`."""
    is_ready(parent, timeout=None)
    time.sleep(GRACE)  # a worker that is waiting has noticed by itself, and ends in good order
    os._exit(1)


def context_of(context: Any) -> Any:
    """The context that DataLoader's `multiprocessing_context` stands for: a start method's name, a context or None.

    ValueError: not a start method of this system. TypeError: neither a name nor a context.
    torch: torch.utils.data.DataLoader.multiprocessing_context"""
    if context is None or isinstance(context, multiprocessing.context.BaseContext):
        return context
    if isinstance(context, str):
        methods = torch.multiprocessing.get_all_start_methods()
        if context in methods:
            return torch.multiprocessing.get_context(context)
        what = f"specify a valid start method in {methods!r}, but got multiprocessing_context={context!r}"
        raise ValueError(f"multiprocessing_context option should {what}")
    what = "be a valid context object or a string specifying the start method"
    raise TypeError(f"multiprocessing_context option should {what}, but got multiprocessing_context={context}")


class RealWorld:
    """See `minidl.world.World`."""

    lent = 1 << 14

    # These services are just what makes the object.
    flag = PipeFlag
    waiter = SelectorWaiter
    mailbox = queue.SimpleQueue
    pid = staticmethod(os.getpid)
    now = staticmethod(time.monotonic)
    current_thread = staticmethod(threading.current_thread)
    before_fork = staticmethod(_before_fork.add)
    page_locked = staticmethod(page_locked)
    environment: Mapping[str, str] = os.environ
    reducers = ForkingPickler(io.BytesIO()).dispatch_table  # all its picklers have this one

    def __init__(self, context: Any = None) -> None:
        self._context = torch.multiprocessing if context is None else context

    def __reduce__(self) -> tuple[Any, ...]:
        return RealWorld, ()  # a worker starts no processes: it needs no context

    def pipe(self) -> tuple[Any, Any]:
        one, other = socket.socketpair()
        return SocketReader(one), SocketWriter(other)

    def memory(self, nbytes: int) -> MappedMemory:
        return MappedMemory(os.memfd_create("minidl"), nbytes)

    def can_send_memory(self) -> bool:
        return hasattr(os, "memfd_create") and os.path.exists("/proc/self/fd")

    def thread(self, target: Callable[..., None], args: Sequence[Any], name: str) -> threading.Thread:
        return threading.Thread(target=target, args=args, name=name, daemon=True)

    def name_thread(self, name: str) -> None:
        getattr(torch.multiprocessing, "_set_thread_name", str)(name)  # (torch 2.6 is the first that has it)

    def process(self, target: Callable[..., None], args: Sequence[Any], name: str) -> Any:
        return self._context.Process(target=target, args=args, name=name, daemon=True)

    def end_of(self, process: Any) -> Any:
        with contextlib.suppress(AttributeError, OSError):  # no such call on this system, or the process is gone
            return Descriptor(os.pidfd_open(process.pid))
        return process.sentinel

    def parent(self) -> Any:
        ending = self.end_of(multiprocessing.parent_process())
        self.thread(_exit_after, (ending,), "watchdog").start()
        return ending

    def on_child_exit(self, look: Callable[[Any], None]) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return False  # Python lets only the main thread install handlers
        previous = signal.getsignal(signal.SIGCHLD)
        if getattr(previous, "look", None) is look:
            return True

        def handler(number: int, frame: Any) -> None:
            look(frame)
            if callable(previous):
                previous(number, frame)

        handler.look = look  # type: ignore[attr-defined]
        signal.signal(signal.SIGCHLD, handler)
        return True

    def on_exit(self, call: Callable[[], None]) -> None:
        if (os.getpid(), call) not in _on_exit:
            _on_exit.add((os.getpid(), call))
            # Not atexit, which a child of multiprocessing does not run. This runs before multiprocessing terminates
            # the workers, in a child as in the first process.
            multiprocessing.util.Finalize(None, call, exitpriority=100)

    def on_interrupt(self, note: Callable[[], None]) -> None:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return  # the program handles Ctrl-C itself, or ignores it

        def handler(number: int, frame: Any) -> None:
            note()
            signal.default_int_handler(number, frame)

        signal.signal(signal.SIGINT, handler)

    def report_crashes(self) -> None:
        torch._C._set_worker_signal_handlers()  # one line on SIGBUS, SIGSEGV, SIGFPE; none on SIGTERM from main
        with contextlib.suppress(Exception):  # stderr is None, or not a file: its fileno() may raise anything
            faulthandler.enable()  # prints the Python line, then passes the signal on to torch's handler

    def signal(self, number: int) -> tuple[str, str]:
        names = {each.value: each.name for each in signal.Signals}
        other = f"signal {number}"  # a real-time signal
        return names.get(number, other), signal.strsignal(number) or other

    def remove_shared_memory_of(self, pid: int) -> None:
        for path in Path("/dev/shm").glob(f"torch_{pid}_*"):  # as torch names it: process, random, count
            path.unlink(missing_ok=True)
