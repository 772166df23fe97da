"""the end of a stream as an error"""

from torch._utils import ExceptionWrapper

from minidl.data.fetch import load
from minidl.messages import Died, Result, Resume, Stop
from minidl.worker import End


class Worker:
    def loop(self):
        self.start()
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
        except Exception:
            return ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")
