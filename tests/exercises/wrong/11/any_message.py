"""any message counts"""

from minidl.deaths import fail_for_death
from minidl.messages import Resume
from minidl.states import WorkerState


class ParallelIterator:
    def _resume_workers(self):
        for worker_id, status in enumerate(self._workers_status):
            if status is WorkerState.DEAD:
                fail_for_death(self, worker_id)
        self._workers_status = [WorkerState.ACTIVE] * self._num_workers
        for index_queue in self._index_queues:
            index_queue.put(Resume(self._epoch_id))
        for _ in range(self._num_workers):
            self._get_data(self._timeout)
