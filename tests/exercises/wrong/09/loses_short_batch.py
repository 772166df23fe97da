"""loses the short batch"""

from minidl.shutdown import tell_to_stop
from minidl.states import WorkerState


class IterableFetcher:
    def fetch(self, keys):
        if not self.auto_collation:
            return next(self.dataset_iter)
        samples = [next(self.dataset_iter) for _ in keys]
        if not samples:
            raise StopIteration
        return samples


class ParallelIterator:
    def _worker_exhausted(self, worker_id):
        self._workers_status[worker_id] = WorkerState.EXHAUSTED
        if not self._persistent_workers:
            tell_to_stop(self, worker_id)
        self._try_put_index()

    def _skip_unfulfilled(self):
        while self._rcvd_idx < self._send_idx:
            info = self._task_info[self._rcvd_idx]
            if info.arrived or self._workers_status[info.worker_id] is WorkerState.ACTIVE:
                return
            del self._task_info[self._rcvd_idx]
            self._rcvd_idx += 1
