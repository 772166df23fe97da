"""Right answers of unusual shapes: helpers and fields of their own, other texts of exceptions, no calls of emit."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable

from notebooks.exercises.exercise import Edit, Exercise
from notebooks.exercises.skeleton import edited


def bodies(head: str = "", **functions: str) -> Callable[[Exercise], str]:
    """The reference with these bodies, and with `head` below the imports."""

    def text(which: Exercise) -> str:
        whole = edited(which, Edit("", "", {name: textwrap.dedent(body) for name, body in functions.items()}, ()))
        last = [
            node.end_lineno or 0 for node in ast.parse(whole).body if isinstance(node, (ast.Import, ast.ImportFrom))
        ][-1]
        lines = whole.splitlines()
        return "\n".join([*lines[:last], textwrap.dedent(head), *lines[last:]]) + "\n"

    return text


def changes(*pairs: tuple[str, str]) -> Callable[[Exercise], str]:
    return lambda which: edited(which, Edit("", "", {}, pairs))


RIGHT: dict[str, dict[str, Callable[[Exercise], str]]] = {
    "01": {
        "a try": bodies(
            fetch="""
            if not self.auto_collation:
                return self.dataset.__getitem__(keys)
            at_once = getattr(self.dataset, "__getitems__", None)
            if callable(at_once):
                return at_once(keys)
            samples = []
            for number in range(len(keys)):
                samples.append(self.dataset[keys[number]])
            return samples
            """
        ),
    },
    "02": {
        "another text": changes(('"each element in list of batch should be of equal size"', '"ragged"')),
        "index by index": bodies(
            collate="""
            def again(column):
                return collate(column, collate_fn_map=collate_fn_map)

            table, elem = collate_fn_map or {}, batch[0]
            function = table.get(type(elem)) or next((f for kind, f in table.items() if isinstance(elem, kind)), None)
            if function is not None:
                return function(batch, collate_fn_map=collate_fn_map)
            if isinstance(elem, Mapping):
                return mapping_like(elem, {key: again([sample[key] for sample in batch]) for key in elem})
            if not isinstance(elem, Sequence):
                raise TypeError(f"cannot collate a {type(elem)}")
            if not _is_namedtuple(elem) and len({len(sample) for sample in batch}) > 1:
                raise RuntimeError("ragged")
            columns = [again([sample[place] for sample in batch]) for place in range(len(elem))]
            if _is_namedtuple(elem):
                return type(elem)(*columns)
            return columns if type(elem) is tuple else sequence_like(elem, columns)
            """
        ),
    },
    "03": {
        "a class of its own": bodies(
            head="""
            class Lists:
                def __init__(self, keys, size, drop_last):
                    self.keys, self.size, self.drop_last = iter(keys), size, drop_last

                def __iter__(self):
                    return self

                def __next__(self):
                    found = list(itertools.islice(self.keys, self.size))
                    if not found or (self.drop_last and len(found) < self.size):
                        raise StopIteration
                    return found
            """,
            __iter__="return Lists(self.sampler, self.batch_size, self.drop_last)",
        ),
    },
    "04": {
        "a cycle": bodies(
            head="import itertools",
            __iter__="""
            order = range(len(self.dataset))
            if self.shuffle:
                own = torch.Generator().manual_seed(self.seed + self.epoch)
                order = torch.randperm(len(self.dataset), generator=own)
                order = order.tolist()
            order = list(order)[: self.total_size] if self.drop_last else list(order)
            if not self.drop_last and len(order) < self.total_size:
                order = list(itertools.islice(itertools.cycle(order), self.total_size))
            if len(order) != self.total_size:
                raise AssertionError("the dataset has changed")
            return iter(order[self.rank :: self.num_replicas])
            """,
        ),
    },
    "05": {
        "counts and a helper": changes(
            ("worker_id = self._next_worker\n", "worker_id = self._whose_turn()\n"),
            (
                "    def _choose_worker",
                "    def _whose_turn(self):\n        return self._next_worker\n\n    def _choose_worker",
            ),
        ),
        "stops at the sampler's end": bodies(
            _prime="""
            before = -1
            while before != self._send_idx and self._send_idx < self._prefetch_factor * self._num_workers:
                before = self._send_idx
                self._try_put_index()
            """
        ),
    },
    "06": {
        "knows nothing of slots": changes(("room = self.transport.room(message.slot, message.fresh)", "room = None")),
        "match": bodies(
            loop="""
            self.start()
            while True:
                if self.interrupted:
                    return End.INTERRUPTED
                match self.index_queue.get():
                    case Stop():
                        return End.STOPPED
                    case Died():
                        return End.PARENT_DIED
                    case Resume() as message:
                        self.resume(message)
                    case message if self.job.done.is_set() or self.stream_ended:
                        continue
                    case message:
                        room = self.transport.room(message.slot, message.fresh)
                        self.result_queue.put(self.answer(message, self.data_of(message), room))
            """
        ),
    },
    "07": {
        "StopIteration with a text": changes(("raise StopIteration\n", 'raise StopIteration("the epoch is over")\n')),
        "a buffer of its own": bodies(
            _receive="""
            result = self._get_data(timeout)
            if not isinstance(result, Result):
                return None
            self._tasks_outstanding -= 1
            self._workers_num_tasks[result.worker_id] -= 1
            self._task_info[result.task_id].data = result.data
            return result.task_id
            """,
            _next_task="""
            while self._rcvd_idx < self._send_idx:
                if self._task_info[self._rcvd_idx].arrived:
                    return self._rcvd_idx
                self._receive(self._timeout)
            if not self._persistent_workers:
                self._shutdown_workers()
            raise StopIteration
            """,
            _take="""
            data = self._task_info[task_id].data
            self._try_put_index()
            del self._task_info[task_id]
            self._rcvd_idx = task_id + 1
            if isinstance(data, ExceptionWrapper):
                data.reraise()
            return data
            """,
        ),
    },
    "08": {
        "never looks twice": bodies(
            _choose_worker="""
            share = max_tasks // max(1, self._workers_status.count(WorkerState.ACTIVE))
            turns = [(self._next_worker + k) % self._num_workers for k in range(self._num_workers)]
            for worker_id in turns:
                if self._workers_status[worker_id] is WorkerState.ACTIVE and self._workers_num_tasks[worker_id] < share:
                    self._next_worker = (worker_id + 1) % self._num_workers
                    return worker_id
            return None
            """
        ),
    },
    "09": {
        "by status": bodies(
            _skip_unfulfilled="""
            for task_id in range(self._rcvd_idx, self._send_idx):
                info = self._task_info[task_id]
                if info.arrived or self._workers_status[info.worker_id] is WorkerState.ACTIVE:
                    break
                self._task_info.pop(task_id)
                self._rcvd_idx = task_id + 1
            """,
            _worker_exhausted="""
            self._workers_status[worker_id] = WorkerState.EXHAUSTED
            self._try_put_index()
            if not self._persistent_workers:
                tell_to_stop(self, worker_id)
            """,
        ),
    },
    "10": {
        "other words": bodies(
            pinned="""
            numbers = result.epoch_id, result.task_id, result.worker_id
            try:
                data = pin_batch(result.data, device, *numbers)
            except Exception:
                data = ExceptionWrapper(where="while pinning")
            return replace(result, data=data)
            """
        ),
    },
    "11": {
        "a list": bodies(
            _resume_workers="""
            dead = [k for k, status in enumerate(self._workers_status) if status is WorkerState.DEAD]
            if dead:
                fail_for_death(self, dead[0])
            self._workers_status[:] = [WorkerState.ACTIVE] * self._num_workers
            answered = [False] * self._num_workers
            for queue in reversed(self._index_queues):
                queue.put(Resume(self._epoch_id))
            while not all(answered):
                message = self._get_data(self._timeout)
                if isinstance(message, Resumed) and message.epoch_id == self._epoch_id:
                    answered[message.worker_id] = True
            """
        ),
    },
    "12": {
        "all at once": bodies(
            check_health="""
            ended = [k for k, each in enumerate(iterator._workers) if not each.is_alive()]
            lost = [k for k in ended if iterator._workers_status[k] is WorkerState.ACTIVE]
            for worker_id in lost:
                iterator._endings.remove(iterator._ending_of[worker_id])
                iterator._workers_status[worker_id] = WorkerState.DEAD
            if lost:
                fail_for_death(iterator, lost[0])
            if iterator._pin_memory_thread is not None and not iterator._pin_memory_thread.is_alive():
                fail(iterator, "the pin thread is gone")
            """
        ),
        "an ExitStack": bodies(
            worker_ended="""
            import contextlib

            before, iterator._workers_status[worker_id] = iterator._workers_status[worker_id], WorkerState.DEAD
            with contextlib.ExitStack() as last:
                if before is WorkerState.ACTIVE:
                    last.callback(fail_for_death, iterator, worker_id)
                iterator._endings.remove(iterator._ending_of[worker_id])
            """
        ),
    },
    "13": {
        "two tries": bodies(
            shut_down="""
            if iterator._shutdown:
                return
            if iterator._owner_pid != iterator._world.pid():
                return
            iterator._shutdown = True
            try:
                try:
                    stop_pin_thread(iterator)
                except BaseException:
                    end_pin_thread(iterator)
                    raise
                finally:
                    tell_workers_to_stop(iterator)
                wait_for_workers(iterator)
            finally:
                try:
                    use_force(iterator)
                finally:
                    close_queues(iterator)
            """,
            wait_for_workers="""
            until = iterator._world.now() + PATIENCE
            for worker in reversed(iterator._workers):
                worker.join(max(until - iterator._world.now(), 0))
            """,
        ),
    },
    "14": {
        "a loop": bodies(
            _feed="""
            try:
                while True:
                    message = self._buffer.get()
                    if message is LAST:
                        return
                    self._send(message)
            except OSError:
                return
            finally:
                self._writer.close()
            """,
            close="""
            if not self.closed:
                self.closed = True
                if self._feeder:
                    self._buffer.put(LAST)
                else:
                    self._writer.close()
            """,
        ),
    },
    "16": {
        "in turns": bodies(
            grant="""
            self._take_back()
            if self._free:
                slot = self._free.pop(0)
            elif self._count < self._most:
                slot = self._count
                self._count += 1
            else:
                return NO_SLOT, False
            return slot, slot in self._fresh
            """,
            _take_back="""
            for _ in range(self._back.qsize()):
                loan = self._back.get()
                if self._lent.get(loan.slot) is loan:
                    del self._lent[loan.slot]
                    self._fresh |= {loan.slot} if loan.retired else set()
                    self._free.append(loan.slot)
            """,
            reclaim="""
            self._take_back()
            self._free += [k for k in range(self._count) if k not in self._lent and k not in self._free]
            """,
        ),
    },
}
