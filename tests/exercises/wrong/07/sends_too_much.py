"""sends too much"""

from torch._utils import ExceptionWrapper


class ParallelIterator:
    def _receive(self, timeout):
        result = self._get_data(timeout)
        self._workers_num_tasks[result.worker_id] -= 1
        self._task_info[result.task_id].data = result.data
        return result.task_id

    def _next_task(self):
        while True:
            if self._rcvd_idx == self._send_idx:
                self._shutdown_workers()
                raise StopIteration
            if self._task_info[self._rcvd_idx].arrived:
                return self._rcvd_idx
            self._receive(self._timeout)

    def _take(self, task_id):
        self._try_put_index()
        self._rcvd_idx += 1
        data = self._task_info.pop(task_id).data
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data
