"""the workers stay exhausted"""

from minidl.deaths import fail_for_death
from minidl.messages import Resume, Resumed
from minidl.states import WorkerState


class ParallelIterator:
    def _resume_workers(self):
        for worker_id, status in enumerate(self._workers_status):
            if status is WorkerState.DEAD:
                fail_for_death(self, worker_id)
        for index_queue in self._index_queues:
            index_queue.put(Resume(self._epoch_id))
        waiting_for = set(range(self._num_workers))
        while waiting_for:
            message = self._get_data(self._timeout)
            if isinstance(message, Resumed):
                waiting_for.discard(message.worker_id)
