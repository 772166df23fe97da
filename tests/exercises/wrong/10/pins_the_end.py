"""pins the end of a stream"""

from torch._utils import ExceptionWrapper

from minidl.messages import Failed, Result
from minidl.pinning import pin_batch
from minidl.queues import Stopped


def pin_loop(world, results, data_queue, device, device_index, epoch_id):
    while True:
        try:
            message = results.get()
        except Stopped:
            return
        except Exception as error:
            message = Failed(epoch_id, error)
        if isinstance(message, Result) and not isinstance(message.data, ExceptionWrapper):
            message = pinned(message, device)
        data_queue.put(message)


def pinned(result, device):
    numbers = result.epoch_id, result.task_id, result.worker_id
    try:
        return Result(*numbers, pin_batch(result.data, device, *numbers))
    except Exception:
        return Result(*numbers, ExceptionWrapper(where="in pin memory thread"))
