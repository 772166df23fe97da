"""The world: everything the loader asks of the operating system, on one page.

The loader is written against `World`. The real one (`minidl.world.real`) is a thin layer over
`multiprocessing`, `threading` and torch's pickler. `use(world)` puts another in its place: every iterator
built after that runs there. No other module of minidl imports `multiprocessing`, `threading`, `time`,
`signal` or `os`, so whatever can go wrong between processes goes wrong behind this page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from minidl.world.real import RealWorld
from minidl.world.real import context_of as context_of


class Waitable(Protocol):
    """Something that a `Waiter` can wait for: a Reader, a Flag, the end of a process."""


class Memory(Protocol):
    """Memory that several processes have mapped, without a name."""

    bytes: Any  # a writable uint8 array

    def forget(self) -> None:
        """Its content will not be read again. (Nothing happens; in a simulated world it is overwritten.)"""

    def give_back(self, begin: int, end: int) -> None:
        """The pages that lie wholly between these bytes go back to the system, for all processes. They hold zeros from
        then on. (In a simulated world, rubbish.)"""


class Reader(Waitable, Protocol):
    """The reading end of a pipe. Exactly one thread reads it, so ready means that `read` will not block."""

    def read(self) -> bytes:
        """The bytes that are in it, at most 64 KiB; b"" once every writing end is closed."""

    def memory(self) -> Memory | None:
        """The next memory that came with the bytes read so far. None: this process could not open it."""

    def close(self) -> None: ...


class Writer(Protocol):
    """The writing end of a pipe. A pipe holds a bounded number of bytes (some 200 KB on Linux)."""

    def write(self, data: memoryview, memory: Memory | None = None) -> int:
        """Write some of `data`, at least one byte, and return how many; block while the pipe is full, or while
        as much memory is on its way as the system lets be. `memory` goes with the first of them.

        BrokenPipeError: every reading end is closed.
        """

    def try_write(self, data: bytes, memory: Memory | None = None) -> int:
        """Write what there is room for, and return how many bytes: perhaps 0. BrokenPipeError as in `write`."""

    def close(self) -> None: ...


class Flag(Waitable, Protocol):
    """A bool that processes share, set once by the process that made it and never cleared.

    Unlike `multiprocessing.Event` it has no lock that a process could hold when it dies (pytorch#16608).
    """

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def close(self) -> None: ...


class Waiter(Protocol):
    """Waits for several things at once. One thread uses it."""

    def add(self, thing: Waitable, label: Any) -> None: ...
    def remove(self, thing: Waitable) -> None: ...
    def wait(self, timeout: float | None) -> list[Any]:
        """The labels of the things that are ready; [] after `timeout` seconds (None: wait for ever)."""

    def close(self) -> None: ...


class Thread(Protocol):
    """A thread of this process. In the real world a `threading.Thread`."""

    def start(self) -> None: ...
    def is_alive(self) -> bool: ...
    def join(self, timeout: float | None = None) -> None: ...


class Process(Thread, Protocol):
    """A child process. In the real world a `multiprocessing.Process`."""

    pid: int | None
    exitcode: int | None

    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Mailbox(Protocol):
    """An unbounded queue between threads of this process, with one reader. In the real world a `queue.SimpleQueue`.

    A put is indivisible: neither Ctrl-C nor a finalizer that puts while its thread is putting can find a lock half
    taken. (`threading.Condition` is written in Python: an interrupt while it is entered can leave it locked for ever.)
    """

    def put(self, item: Any) -> None: ...
    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next item. queue.Empty: none came within `timeout` seconds (None: wait for ever)."""

    def qsize(self) -> int: ...


class World(Protocol):
    """The services. A worker gets its world as an argument, so a world must be picklable."""

    lent: int  # bytes; from here on building a tensor upon the memory that it came in costs less than copying it
    environment: Mapping[str, str]
    reducers: Any  # a pickler's dispatch_table, by which tensors travel as handles to shared memory

    def pid(self) -> int: ...
    def now(self) -> float:
        """Seconds, on a clock that never goes backwards."""

    def pipe(self) -> tuple[Reader, Writer]: ...
    def memory(self, nbytes: int) -> Memory:
        """New memory, to be sent with a message."""

    def can_send_memory(self) -> bool:
        """Whether this system has memory without a name that can be sent."""

    def flag(self) -> Flag: ...
    def waiter(self) -> Waiter: ...
    def mailbox(self) -> Mailbox: ...

    def thread(self, target: Callable[..., None], args: Sequence[Any], name: str) -> Thread:
        """A daemon thread, not yet started."""

    def current_thread(self) -> Thread: ...
    def name_thread(self, name: str) -> None:
        """Name the calling thread for the operating system's tools (top, gdb)."""

    def process(self, target: Callable[..., None], args: Sequence[Any], name: str) -> Process:
        """A daemon process, not yet started."""

    def end_of(self, process: Process) -> Waitable:
        """Ready once a started process has ended, however it ended."""

    def parent(self) -> Waitable:
        """In a worker: ready once main has ended. A worker busy in native code or in a long fetch cannot notice
        that, so from this call on it is also ended by force, a second after main."""

    def on_child_exit(self, look: Callable[[Any], None]) -> bool:
        """Call `look(frame)` on the main thread soon after any child ends; `frame` is where the main thread was
        interrupted. False: not installed, as only the main thread can do so. Asking twice is harmless."""

    def on_exit(self, call: Callable[[], None]) -> None:
        """Call `call` when this process exits, while everything still works. Asking twice is harmless."""

    def before_fork(self, thing: Any, /) -> None:
        """Call `thing.before_fork()` before this process forks a child, for as long as the thing exists."""

    def on_interrupt(self, note: Callable[[], None]) -> None:
        """In a worker: call `note` on Ctrl-C, before the KeyboardInterrupt, which may be raised in a finalizer, where
        Python swallows it."""

    def report_crashes(self) -> None:
        """In a worker: make a fatal signal print where it hit before it kills."""

    def signal(self, number: int) -> tuple[str, str]:
        """A signal's name in C, and the C library's words for it: "SIGKILL", "Killed"."""

    def remove_shared_memory_of(self, pid: int) -> None:
        """A process killed between making a piece of shared memory and removing its name leaves the name, and with it
        the memory, until the machine restarts. Only for a process that has ended."""

    def page_locked(self, nbytes: int) -> Any:
        """A writable buffer that the system will not swap out, released when it is dropped; None if the limit on
        locked memory forbids it."""


_installed: World | None = None


def use(world: World | None) -> World | None:
    """Build iterators in `world` from now on (None: the real one); return the one that it replaces."""
    global _installed
    previous, _installed = _installed, world
    return previous


def current(context: Any = None) -> World:
    """The world for a new iterator; `context` is a multiprocessing context, or None for the default one."""
    return _installed or RealWorld(context)
