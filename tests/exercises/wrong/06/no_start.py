"""never starts"""

from torch._utils import ExceptionWrapper
from torch.utils.data import IterableDataset

from minidl.data.fetch import load
from minidl.messages import Died, Result, Resume, Stop, StreamEnd
from minidl.worker import End


class Worker:
    def loop(self):
        while not self.interrupted:
            message = self.index_queue.get()
            if isinstance(message, Stop):
                return End.STOPPED
            if isinstance(message, Died):
                return End.PARENT_DIED
            if isinstance(message, Resume):
                self.resume(message)
                continue
            if self.job.done.is_set() or self.stream_ended:
                continue
            data = self.data_of(message)
            self.result_queue.put(Result(message.epoch_id, message.task_id, self.job.worker_id, data))
        return End.INTERRUPTED

    def data_of(self, task):
        worker_id = self.job.worker_id
        if self.failure is not None:
            return self.failure
        if isinstance(task.keys, ExceptionWrapper):
            return task.keys
        try:
            return load(self.fetcher, task.keys, task.epoch_id, task.task_id, worker_id)
        except Exception as error:
            if isinstance(error, StopIteration) and isinstance(self.job.dataset, IterableDataset):
                self.stream_ended = True
                return StreamEnd(worker_id)
            return ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")
