"""The start-up of a ParallelIterator: for each worker two pipes, a process, and a watch on its end; then, if
batches are pinned, the pin thread.

Every worker is started before the first thread is (the feeders start at the first put): a fork while another
thread holds a lock would give the child a lock that is never released.

torch: torch.utils.data.dataloader._MultiProcessingDataLoaderIter.__init__
"""

from __future__ import annotations

import warnings
from pickle import PicklingError
from typing import TYPE_CHECKING

import torch

from minidl import events
from minidl.events import Queue, emit
from minidl.pinning import HOST, pin_loop
from minidl.queues import DirectProducer, Producer, ThreadQueue
from minidl.transport import Handles, Unpacker
from minidl.worker import Job, run
from minidl.world import Process

if TYPE_CHECKING:
    from minidl.loader import DataLoader
    from minidl.parallel import ParallelIterator


def start_workers(iterator: ParallelIterator, loader: DataLoader) -> None:
    """One worker after another. Each joins the iterator's lists once it runs, so that after a failure halfway they
    hold exactly what must be shut down."""
    world, epoch_id, slots = iterator._world, iterator._epoch_id, loader.transport == "slots"
    kind = DirectProducer if slots else Producer
    for worker_id in range(loader.num_workers):
        index_reader, index_writer = world.pipe()
        result_reader, result_writer = world.pipe()
        job = Job(
            world=world,
            recorder=events.installed(),
            epoch_id=epoch_id,
            worker_id=worker_id,
            num_workers=loader.num_workers,
            base_seed=iterator._base_seed,
            init_fn=loader.worker_init_fn,
            dataset=loader.dataset,
            how_to_fetch=iterator._how_to_fetch,
            transport=loader.transport,
            index_reader=index_reader,
            result_writer=result_writer,
            done=iterator._workers_done_event,
        )
        iterator._index_queues.append(kind(world, index_writer, Queue.INDEX, worker_id))
        worker = world.process(run, (job, iterator._worker_class(worker_id)), f"minidl worker {worker_id}")
        emit(events.WORKER_STARTING, epoch_id, worker=worker_id)
        try:
            start(worker)
        finally:
            if worker.pid is not None:  # even if Ctrl-C came just after it started
                iterator._workers.append(worker)
            # The worker has copies of its own. If main kept these, the pipe would not end with the worker.
            index_reader.close()
            result_writer.close()
        emit(events.WORKER_STARTED, epoch_id, worker=worker_id, value=worker.pid or 0)
        ending = world.end_of(worker)
        iterator._ending_of.append(ending)
        iterator._endings.add(ending, worker_id)
        # The caller usually has two batches: the one in the loop's variable, and the one that it asks for.
        transport = Unpacker(world, worker_id, iterator._prefetch_factor + 2) if slots else Handles(world)
        iterator._transports.append(transport)
        iterator._worker_result_queue.add(worker_id, result_reader, ending, transport)


def start(worker: Process) -> None:
    """Under spawn and forkserver this pickles the job: the dataset, the functions."""
    try:
        worker.start()
    except (TypeError, AttributeError, PicklingError):
        warnings.warn(
            "Got pickle error when attempting to start a worker Process. "
            "This might be because the worker Process arguments are not picklable. "
            "Python 3.14+ changed the multiprocessing start method in non-Mac POSIX platforms "
            "to 'forkserver', which requires the worker Process arguments to be picklable. "
            "You can also try multiprocessing.set_start_method('fork').",
            stacklevel=6,
        )
        raise


def start_pin_thread(iterator: ParallelIterator) -> None:
    """From here on the pin thread is the only one that reads worker_result_queue; main reads data_queue."""
    world, epoch_id = iterator._world, iterator._epoch_id
    data_queue = ThreadQueue(world, epoch_id)
    device = iterator._pin_memory_device
    # Asked here: a new thread begins with the first device, whichever one main has chosen.
    device_index = None if device == HOST else torch.accelerator.current_device_index()
    args = world, iterator._worker_result_queue, data_queue, device, device_index, epoch_id
    # Recorded before it starts: if Ctrl-C interrupts the start, it must be stopped like any other.
    iterator._pin_memory_thread = thread = world.thread(pin_loop, args, "pin thread")
    thread.start()
    iterator._data_queue = data_queue
