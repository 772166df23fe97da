"""What ends a chain of threads that wait for each other (tracing.analysis.hang.wait_chain): why nothing comes."""

from __future__ import annotations

import enum

from tracing.trace.stacks import Line


class Cause(enum.Enum):
    """Why the last thread in the chain delivers nothing."""

    # The user's code
    CODE = "It is in the program's code: the loader can only wait until that returns."
    INIT_FN = "It is in worker_init_fn: the loader can only wait until that returns."
    START = "It has not reached its task loop: it is importing, unpickling the dataset, or calling its __iter__."
    TRAINING = "No batch is asked for: the training step, or whatever the program does instead, has not returned."
    # Processes
    STOPPED = "Its process is stopped (SIGSTOP, Ctrl-Z, a debugger) and does nothing until it is continued."
    DEAD = "It is dead, and the thread that waits for it has not noticed."
    ENDED = "It has left its loop, though it owes a message."
    # Messages
    LOST = "Nothing is on its way to it, and nothing will be sent to it: the batch's message was lost."
    UNSENDABLE = "The batch could not be pickled. torch drops it then, but goes on waiting for it."
    UNSEEN = (
        "It was put and has not come out. What is in between is not recorded: the feeder thread, the pipe, and the "
        "queue's lock, which a killed process can hold forever."
    )
    HALF_MESSAGE = "The reader has not got a whole message: the writer stopped in the middle of it."
    # The loader
    LOADER = "It is in the loader's own code, or in what that calls."
    CIRCLE = "They wait for each other: nothing will wake any of them."

    def advice(self, pid: int, line: Line | None) -> str:
        """What to do, given its process and the line that it is in, if that is known."""
        where = f"Look at {line.file}:{line.line}" if line else f"See where it is: py-spy dump --pid {pid}"
        return ADVICE.get(self, "{where}").format(where=where, pid=pid)


ADVICE = {  # else: look where it is
    Cause.TRAINING: "It is not the loader. {where}",
    Cause.STOPPED: "Continue it: kill -CONT {pid}",
    Cause.DEAD: "Stop the program. The kernel's log (dmesg) shows if memory ran out, the scheduler's if a limit was "
    "hit",
    Cause.ENDED: "Stop the program",
    Cause.LOST: "Stop the program. With timeout=... the DataLoader raises an error instead of waiting forever",
    Cause.UNSENDABLE: "Stop the program, and make the dataset and collate_fn return something that can be pickled",
    Cause.CIRCLE: "Stop the program",
}
