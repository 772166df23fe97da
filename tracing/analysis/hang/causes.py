"""What ends a chain of threads that wait for each other (tracing.analysis.hang.wait_chain): why nothing comes."""

from __future__ import annotations

import enum

from tracing.trace.stacks import Line

SEE_WHERE = "See where it is: py-spy dump --pid {pid}"  # where its line is not known


class Cause(enum.Enum):
    """Why the last thread in the chain delivers nothing; and what to do."""

    why: str
    advice: str  # {pid}: of its process

    def __new__(cls, why: str, advice: str = SEE_WHERE) -> Cause:
        cause = object.__new__(cls)
        cause._value_ = why
        cause.why, cause.advice = why, advice
        return cause

    def advise(self, pid: int, line: Line | None) -> str:
        """What to do, given its process and the line that it is in, if that is known."""
        where = SEE_WHERE.format(pid=pid) if line is None else f"Look at {line.file}:{line.line}"
        return self.advice.replace(SEE_WHERE, "{where}").format(pid=pid, where=where)

    # The user's code
    DATASET = "It is in the dataset's code: the loader can only wait until that returns."
    COLLATE = "It is in collate_fn: the loader can only wait until that returns."
    SAMPLER = "It is in the sampler's code: the loader can only wait until that returns."
    INIT_FN = "It is in worker_init_fn: the loader can only wait until that returns."
    START = "It has not reached its task loop: it is importing, unpickling the dataset, or calling its __iter__."
    TRAINING = (
        "No batch is asked for: the training step, or whatever the program does instead, has not returned.",
        f"It is not the loader. {SEE_WHERE}",
    )
    BEFORE = "No loader can be the reason: none has begun."
    # Processes
    STOPPED = (
        "Its process is stopped (SIGSTOP, Ctrl-Z, a debugger) and does nothing until it is continued.",
        "Continue it: kill -CONT {pid}",
    )
    DEAD = (
        "It is dead, and the thread that waits for it has not noticed.",
        "Stop the program. What killed it: the kernel's log (dmesg) shows a lack of memory, the scheduler's a limit",
    )
    ENDED = "It has left its loop, though it owes a message.", "Stop the program"
    INTERRUPTED = (
        "Such a wait ends after its timeout and begins again, but this one did not: it was interrupted (Ctrl-C), or "
        "its process gets no CPU time.",
        f"If it was not interrupted: {SEE_WHERE}",
    )
    # Messages
    LOST = (
        "Nothing is on its way to it, and nothing will be sent to it: the batch's message was lost.",
        "Stop the program. With timeout=... the DataLoader raises an error instead of waiting forever",
    )
    UNSENDABLE = (
        "The batch could not be pickled. torch drops it then, but goes on waiting for it.",
        "Stop the program, and make the dataset and collate_fn return something that can be pickled",
    )
    UNSEEN = (
        "It was put and has not come out. What is in between is not recorded: the feeder thread, the pipe, and the "
        "queue's lock, which a killed process can hold forever.",
    )
    HALF_MESSAGE = "The reader has not got a whole message: the writer stopped in the middle of it."
    NOT_TAKEN = "The whole message is there, and is not taken."
    PICKLING = "It is pickling the message."
    UNPICKLING = "It is unpickling a message. For each tensor it asks the process that sent it."
    PINNING = "It is copying the batch into page-locked memory."
    # The loader
    LOADER = "It is in the loader's own code."
    CIRCLE = "They wait for each other: nothing will wake any of them.", "Stop the program"
