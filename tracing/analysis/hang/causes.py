"""Why somebody is waited for in vain: the ends of a chain of tracing.analysis.hang.wait_chain."""

from __future__ import annotations

import enum

LOOK = "See where it is: py-spy dump --pid {pid}"


class Cause(enum.Enum):
    """Why it does not come, said of the last in the chain; and what to do."""

    why: str
    advice: str  # {pid}: of its process

    def __new__(cls, why: str, advice: str = LOOK) -> Cause:
        cause = object.__new__(cls)
        cause._value_ = why
        cause.why, cause.advice = why, advice
        return cause

    # A user's code
    DATASET = "It is in the dataset's code: the loader can only wait until that returns."
    COLLATE = "It is in collate_fn: the loader can only wait until that returns."
    SAMPLER = "It is in the sampler's code: the loader can only wait until that returns."
    INIT_FN = "It is in worker_init_fn: the loader can only wait until that returns."
    START = "It has not come so far as to wait for tasks: it imports, unpickles the dataset, or calls its __iter__."
    TRAINING = (
        "No batch is asked for: the training step, or whatever the program does instead, has not come back.",
        "It is not the loader. See where the program is: py-spy dump --pid {pid}",
    )
    # Processes
    STOPPED = (
        "Its process is stopped (SIGSTOP, Ctrl-Z, a debugger) and does nothing until it is continued.",
        "Continue it: kill -CONT {pid}",
    )
    DEAD = (
        "It is dead, and who waits for it has not noticed.",
        "Stop the program. What killed it: the kernel's log (dmesg) tells of memory, the scheduler's of limits",
    )
    ENDED = "It has left its loop, though it owes a message.", "Stop the program"
    INTERRUPTED = (
        "Such a wait ends after its timeout and begins anew, and this one did not: it was interrupted (Ctrl-C), or its "
        "process gets no time.",
        "If nobody interrupted it, see where it is: py-spy dump --pid {pid}",
    )
    # Messages
    LOST = (
        "Nothing is on its way to it, and nobody owes it anything: the batch's message was lost.",
        "Stop the program. With timeout=... the DataLoader raises an error instead of waiting for ever",
    )
    UNSENDABLE = (
        "The batch could not be pickled. torch drops it then, and goes on to wait for it.",
        "Stop the program, and return from the dataset and collate_fn what can be pickled",
    )
    UNSEEN = (
        "It was put and has not come out. What lies between is not recorded: the feeder thread, the pipe, and the "
        "queue's lock, which a process that was killed can hold for ever.",
    )
    HALF_MESSAGE = "The reader has got no whole message: the writer stands still in the middle of it."
    NOT_TAKEN = "The message is there, whole, and is not taken."
    PICKLING = "It pickles the message."
    UNPICKLING = "It unpickles a message. For each tensor it asks the process that sent it."
    PINNING = "It copies the batch into page-locked memory."
    # The loader
    LOADER = "It is in the loader's own code."
    CIRCLE = "They wait for each other: nobody will wake any of them.", "Stop the program"
