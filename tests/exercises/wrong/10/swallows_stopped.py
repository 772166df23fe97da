"""goes on after the flag is set"""

from torch._utils import ExceptionWrapper

from minidl.messages import Failed, Result, StreamEnd
from minidl.pinning import pin_batch


def pin_loop(world, results, data_queue, device, device_index, epoch_id):
    while True:
        try:
            message = results.get()
        except Exception as error:
            message = Failed(epoch_id, error)
        if isinstance(message, Result) and not isinstance(message.data, (ExceptionWrapper, StreamEnd)):
            message = pinned(message, device)
        data_queue.put(message)


def pinned(result, device):
    epoch_id, task_id, worker_id = result.epoch_id, result.task_id, result.worker_id
    try:
        return Result(epoch_id, task_id, worker_id, pin_batch(result.data, device, epoch_id, task_id, worker_id))
    except Exception:
        return Result(epoch_id, task_id, worker_id, ExceptionWrapper(where="in the pin thread"))
