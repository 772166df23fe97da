"""gives up at a full worker"""

from torch._utils import ExceptionWrapper

from minidl.states import WorkerState


class ParallelIterator:
    def _choose_worker(self, max_tasks):
        active = self._workers_status.count(WorkerState.ACTIVE)
        worker_id = self._next_worker
        self._next_worker = (worker_id + 1) % self._num_workers
        if self._workers_num_tasks[worker_id] >= max_tasks // active:
            return None
        return worker_id

    def _next_task(self):
        while True:
            self._skip_unfulfilled()
            if self._rcvd_idx == self._send_idx:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            task_id = self._receive(self._timeout)
            if task_id is not None:
                return task_id

    def _take(self, task_id):
        self._try_put_index()
        info = self._task_info.pop(task_id)
        if task_id == self._rcvd_idx:
            self._rcvd_idx += 1
        if isinstance(info.data, ExceptionWrapper):
            info.data.reraise()
        return info.data
