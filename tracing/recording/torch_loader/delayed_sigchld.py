"""Delays torch's handler of SIGCHLD while main is emitting an event.

The handler raises wherever main happens to be. Raised inside `emit`, its error would be taken for a failure of the
recorder: the recorder would be removed, and the worker's death would go unreported.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import traceback
from typing import Any

from torch.utils.data._utils.signal_handling import _set_SIGCHLD_handler

from minidl.events import emit

AGAIN = 0.001  # seconds; an event takes a thousandth of it


def delay_sigchld() -> None:
    """Put a handler in front of torch's, once. Only the main thread can; elsewhere torch has no handler either."""
    if threading.current_thread() is not threading.main_thread():
        return
    _set_SIGCHLD_handler()  # torch does so at its first iterator, and only once
    torchs = signal.getsignal(signal.SIGCHLD)
    if not callable(torchs) or hasattr(torchs, "__wrapped__"):
        return

    @functools.wraps(torchs)
    def handler(number: int, frame: Any) -> None:
        if any(caller.f_code is emit.__code__ for caller, _ in traceback.walk_stack(frame)):
            threading.Timer(AGAIN, os.kill, (os.getpid(), number)).start()
        else:
            torchs(number, frame)

    signal.signal(signal.SIGCHLD, handler)
