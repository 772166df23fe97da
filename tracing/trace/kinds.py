"""What each kind of event means to the views of a trace: a row for each. Its sentence is `Kind.when`.

Legend
    status    Worker.FETCHING             what a thread does from this event on, until its next one
    slice     "fetch {batch}"             the same in a Perfetto trace; the fields are those of `Kind.when`
    mark      "worker {worker} died"      a symbol in the timeline, with its name
"""

from __future__ import annotations

from typing import NamedTuple

from minidl.events import Kind
from tracing.trace.event_index import Lane
from tracing.trace.state import MainStatus as Main
from tracing.trace.state import PinStatus as Pin
from tracing.trace.state import WorkerStatus as Worker


class Traits(NamedTuple):
    """A row; these are its defaults."""

    worker: Worker = Worker.IDLE
    pin: Pin = Pin.WAITING
    main: Main = Main.HANDLING
    slice: str = ""
    mark: str = ""
    lane: Lane = Lane.MAIN  # in which the mark is
    noted: bool = False  # in the live view, and beside its thread in a sequence diagram
    alarming: bool = False  # an error or a death: noted, too, and drawn in red


TRAITS: dict[int, Traits] = dict.fromkeys(range(256), Traits()) | {
    # the work itself
    Kind.FETCH_BEGIN: Traits(worker=Worker.FETCHING, main=Main.FETCHING, slice="fetch {batch}"),
    Kind.FETCH_END: Traits(worker=Worker.FETCHING, main=Main.FETCHING),
    Kind.COLLATE_BEGIN: Traits(worker=Worker.COLLATING, main=Main.COLLATING, slice="collate {batch}"),
    Kind.COLLATE_END: Traits(worker=Worker.SENDING),
    Kind.PIN_BEGIN: Traits(pin=Pin.PINNING, main=Main.PINNING, slice="pin {batch}"),
    Kind.PIN_END: Traits(pin=Pin.PASSING_ON),
    Kind.FETCH_FAILED: Traits(worker=Worker.SENDING, mark="fetch failed", lane=Lane.WORKER, alarming=True),
    Kind.PIN_FAILED: Traits(pin=Pin.PASSING_ON, mark="pin failed", lane=Lane.PIN, alarming=True),
    # any queue
    Kind.PUT: Traits(pin=Pin.PASSING_ON, main=Main.DISPATCHING, slice="put {batch}"),
    Kind.SEND_BEGIN: Traits(worker=Worker.SENDING, main=Main.DISPATCHING, slice="pickle {batch}"),  # or a feeder
    Kind.SENT: Traits(main=Main.DISPATCHING),
    Kind.WAIT: Traits(worker=Worker.WAITING, main=Main.WAITING, slice="wait"),
    Kind.ARRIVED: Traits(worker=Worker.TAKING, pin=Pin.TAKING, main=Main.TAKING, slice="get {batch}"),
    Kind.GOT: Traits(worker=Worker.TAKING, pin=Pin.TAKING, main=Main.TAKING, slice="get {batch}"),
    Kind.TIMED_OUT: Traits(worker=Worker.WAITING, main=Main.WAITING),
    Kind.CLOSED: Traits(worker=Worker.STOPPED),
    # main, one step of the iteration
    Kind.ASKED: Traits(slice="next batch"),
    Kind.YIELDED: Traits(main=Main.TRAINING, slice="training step {batch}", noted=True),
    Kind.KEYS_BEGIN: Traits(main=Main.DRAWING, slice="draw keys {batch}"),
    Kind.KEYS_DRAWN: Traits(main=Main.DISPATCHING),
    Kind.STORED: Traits(noted=True),
    Kind.DISPATCHED: Traits(main=Main.DISPATCHING),
    Kind.NO_CAPACITY: Traits(noted=True),
    # epochs and start-up
    Kind.LOADER: Traits(main=Main.STARTING, slice="start-up", noted=True),
    Kind.WORKER_STARTING: Traits(worker=Worker.STARTING, main=Main.STARTING, slice="start worker {worker}", noted=True),
    Kind.WORKER_STARTED: Traits(main=Main.STARTING),
    Kind.WORKER_BEGIN: Traits(worker=Worker.STARTING, slice="start-up", noted=True),
    Kind.WORKER_SEEDED: Traits(worker=Worker.STARTING),
    Kind.INIT_FN_BEGIN: Traits(worker=Worker.STARTING, slice="worker_init_fn", noted=True),
    Kind.INIT_FN_END: Traits(worker=Worker.STARTING, noted=True),
    Kind.WORKER_READY: Traits(noted=True),
    Kind.PIN_THREAD_BEGIN: Traits(pin=Pin.STARTING, noted=True),
    Kind.EPOCH_BEGIN: Traits(main=Main.STARTING, slice="begin the epoch", mark="epoch {epoch}", noted=True),
    Kind.PRIMED: Traits(main=Main.TRAINING, noted=True),
    Kind.WORKER_RESUMED: Traits(worker=Worker.RESUMING, noted=True),
    Kind.RESUME_ACKNOWLEDGED: Traits(main=Main.RESUMING),
    Kind.STREAM_END: Traits(worker=Worker.SENDING, mark="stream ended", lane=Lane.WORKER, noted=True),
    Kind.WORKER_EXHAUSTED: Traits(noted=True),
    Kind.TASK_SKIPPED: Traits(noted=True),
    Kind.EPOCH_END: Traits(main=Main.ENDED, mark="epoch ends", noted=True),
    # errors and deaths (main's event, but the status of the worker; so are WORKER_STARTING and WORKER_JOINED)
    Kind.ERROR_RAISED: Traits(main=Main.RAISED, mark="{error} raised", alarming=True),
    Kind.WORKER_DIED: Traits(worker=Worker.DEAD, mark="worker {worker} died ({exit})", lane=Lane.WORKER, alarming=True),
    Kind.TASK_LOST: Traits(alarming=True),
    Kind.PARENT_DIED: Traits(worker=Worker.STOPPED, mark="main is dead", lane=Lane.WORKER, alarming=True),
    # shutdown, in the order of its steps
    Kind.SHUTDOWN_BEGIN: Traits(slice="shutdown", mark="shutdown", noted=True),
    Kind.PIN_STOPPING: Traits(slice="stop the pin thread", mark="stop pin thread", noted=True),
    Kind.PIN_THREAD_END: Traits(pin=Pin.ENDED, mark="pin thread ends", lane=Lane.PIN, noted=True),
    Kind.PIN_JOINED: Traits(mark="pin thread joined", noted=True),
    Kind.DONE_SET: Traits(mark="done event set", noted=True),
    Kind.WORKER_END: Traits(
        worker=Worker.STOPPED, mark="worker {worker} leaves its loop", lane=Lane.WORKER, noted=True
    ),
    Kind.JOIN_BEGIN: Traits(slice="join worker {worker}", mark="wait for worker {worker}", noted=True),
    Kind.WORKER_JOINED: Traits(worker=Worker.REAPED, mark="worker {worker} joined", lane=Lane.WORKER, noted=True),
    Kind.WORKER_TERMINATED: Traits(mark="SIGTERM to worker {worker}", lane=Lane.WORKER, alarming=True),
    Kind.WORKER_KILLED: Traits(mark="SIGKILL to worker {worker}", lane=Lane.WORKER, alarming=True),
    Kind.SHUTDOWN_END: Traits(main=Main.CLOSED, mark="shutdown complete", noted=True),
    # resuming in mid-epoch
    Kind.STATE_TAKEN: Traits(mark="state after {value}"),
    Kind.GOES_ON: Traits(mark="epoch {epoch} goes on after {value}"),
    # slots
    Kind.SLOT_GRANTED: Traits(main=Main.DISPATCHING),
    Kind.SLOT_FILLED: Traits(worker=Worker.SENDING),
    Kind.SLOT_MADE: Traits(worker=Worker.SENDING),
    Kind.SLOT_LENT: Traits(pin=Pin.TAKING, main=Main.TAKING),
    Kind.SLOT_FREE: Traits(main=Main.DISPATCHING),
}
ALARMING = {kind for kind in Kind if TRAITS[kind].alarming}
NOTED = {kind for kind in Kind if TRAITS[kind].noted or TRAITS[kind].alarming}
MARKED = {kind for kind in Kind if TRAITS[kind].mark}
# Main's, in the order in which they come.
SHUTDOWN_STEPS = [kind for kind in Kind if Kind.SHUTDOWN_BEGIN <= kind <= Kind.SHUTDOWN_END and kind.who == "main"]
