"""a dead worker is expected to answer"""

from minidl.messages import Resume, Resumed
from minidl.states import WorkerState


class ParallelIterator:
    def _resume_workers(self):
        self._workers_status = [WorkerState.ACTIVE] * self._num_workers
        for index_queue in self._index_queues:
            index_queue.put(Resume(self._epoch_id))
        waiting_for = set(range(self._num_workers))
        while waiting_for:
            message = self._get_data(self._timeout)
            if isinstance(message, Resumed):
                waiting_for.discard(message.worker_id)
