"""What a thread does, told by the last event that it said: a table for each kind of thread.

An event that stands in none of them leaves a worker idle, the pin thread waiting, and main between two things.
"""

from __future__ import annotations

from minidl.events import Kind
from tracing.trace.state import MainStatus, PinStatus, WorkerStatus

WORKER_STATUS: dict[int, WorkerStatus] = {
    Kind.WORKER_BEGIN: WorkerStatus.STARTING,
    Kind.WORKER_SEEDED: WorkerStatus.STARTING,
    Kind.INIT_FN_BEGIN: WorkerStatus.STARTING,
    Kind.INIT_FN_END: WorkerStatus.STARTING,
    Kind.WORKER_READY: WorkerStatus.IDLE,
    Kind.WAIT: WorkerStatus.WAITING,
    Kind.TIMED_OUT: WorkerStatus.WAITING,
    Kind.ARRIVED: WorkerStatus.TAKING,
    Kind.GOT: WorkerStatus.TAKING,
    Kind.FETCH_BEGIN: WorkerStatus.FETCHING,
    Kind.FETCH_END: WorkerStatus.FETCHING,
    Kind.COLLATE_BEGIN: WorkerStatus.COLLATING,
    Kind.COLLATE_END: WorkerStatus.SENDING,
    Kind.FETCH_FAILED: WorkerStatus.SENDING,
    Kind.STREAM_END: WorkerStatus.SENDING,
    Kind.WORKER_RESUMED: WorkerStatus.RESUMING,
    Kind.PUT: WorkerStatus.IDLE,
    Kind.PARENT_DIED: WorkerStatus.STOPPED,
    Kind.WORKER_END: WorkerStatus.STOPPED,
    Kind.JOIN_CANCELLED: WorkerStatus.STOPPED,
    Kind.CLOSED: WorkerStatus.STOPPED,
    Kind.FEEDER_JOINED: WorkerStatus.STOPPED,
}
PIN_STATUS: dict[int, PinStatus] = {
    Kind.PIN_THREAD_BEGIN: PinStatus.STARTING,
    Kind.WAIT: PinStatus.WAITING,
    Kind.TIMED_OUT: PinStatus.WAITING,
    Kind.ARRIVED: PinStatus.TAKING,
    Kind.GOT: PinStatus.TAKING,
    Kind.PIN_BEGIN: PinStatus.PINNING,
    Kind.PIN_END: PinStatus.PASSING_ON,
    Kind.PIN_FAILED: PinStatus.PASSING_ON,
    Kind.PUT: PinStatus.PASSING_ON,
    Kind.PIN_THREAD_END: PinStatus.ENDED,
}
MAIN_STATUS: dict[int, MainStatus] = {
    Kind.LOADER: MainStatus.STARTING,
    Kind.WORKER_STARTING: MainStatus.STARTING,
    Kind.WORKER_STARTED: MainStatus.STARTING,
    Kind.EPOCH_BEGIN: MainStatus.STARTING,
    Kind.PRIMED: MainStatus.TRAINING,
    Kind.YIELDED: MainStatus.TRAINING,
    Kind.KEYS_BEGIN: MainStatus.DRAWING,
    Kind.KEYS_DRAWN: MainStatus.DISPATCHING,
    Kind.DISPATCHED: MainStatus.DISPATCHING,
    Kind.PUT: MainStatus.DISPATCHING,
    Kind.WAIT: MainStatus.WAITING,
    Kind.TIMED_OUT: MainStatus.WAITING,
    Kind.HEALTH_CHECK: MainStatus.WAITING,
    Kind.ARRIVED: MainStatus.TAKING,
    Kind.GOT: MainStatus.TAKING,
    Kind.FETCH_BEGIN: MainStatus.FETCHING,
    Kind.FETCH_END: MainStatus.FETCHING,
    Kind.COLLATE_BEGIN: MainStatus.COLLATING,
    Kind.PIN_BEGIN: MainStatus.PINNING,
    Kind.RESUME_ACKNOWLEDGED: MainStatus.RESUMING,
    Kind.ERROR_RAISED: MainStatus.RAISED,
    Kind.EPOCH_END: MainStatus.ENDED,
    Kind.SHUTDOWN_END: MainStatus.CLOSED,
}
# Of main, in the order in which they come.
SHUTDOWN_STEPS = (
    Kind.SHUTDOWN_BEGIN,
    Kind.PIN_STOPPING,
    Kind.PIN_JOINED,
    Kind.DONE_SET,
    Kind.JOIN_BEGIN,
    Kind.WORKER_JOINED,
    Kind.WORKER_TERMINATED,
    Kind.WORKER_KILLED,
    Kind.SHUTDOWN_END,
)
