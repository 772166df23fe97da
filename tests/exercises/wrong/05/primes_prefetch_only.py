"""primes prefetch_factor only"""

from minidl.messages import Task
from minidl.states import TaskInfo, WorkerState


class ParallelIterator:
    def _prime(self):
        for _ in range(self._prefetch_factor):
            self._try_put_index()

    def _try_put_index(self):
        try:
            keys = self._next_keys()
        except StopIteration:
            return
        worker_id = self._choose_worker(self._prefetch_factor * self._num_workers)
        if worker_id is None:
            return
        self._task_info[self._send_idx] = TaskInfo(worker_id, keys)
        self._workers_num_tasks[worker_id] += 1
        self._tasks_outstanding += 1
        self._index_queues[worker_id].put(Task(self._epoch_id, self._send_idx, keys))
        self._send_idx += 1

    def _choose_worker(self, max_tasks):
        for _ in range(self._num_workers):
            worker_id = self._next_worker
            self._next_worker = (worker_id + 1) % self._num_workers
            if self._workers_status[worker_id] is WorkerState.ACTIVE:
                return worker_id
        return None
