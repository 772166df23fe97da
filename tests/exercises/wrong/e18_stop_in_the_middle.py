"""Exercise 18: wrong answers, and right ones of other shapes. Most are edits of a body in plain words."""

from tests.exercises.wrong.edits import Wrong

BEGIN = """
    self.snapshot = snapshot
    self.steps = snapshot.steps
    self.last_worker = snapshot.last_worker
    self.places = list(snapshot.places)
"""
HEARD = """
    if isinstance(message, Resumed):
        self.places[message.worker_id] = message.place
        self.snapshot.places[message.worker_id] = message.place
    else:
        self.arrived[message.task_id] = (message.worker_id, message.place)
    return message
"""
PASSED = """
    worker_id, place = self.arrived.pop(task_id, (0, None))
    if place is not None:
        self.places[worker_id] = {**(self.places[worker_id] or {}), **place}
    if yielded:
        self.steps += 1
    self.last_worker = worker_id
    self._passed.append(task_id)
    if len(self._passed) >= self.interval:
        self.snapshot = Snapshot(self.steps, self.last_worker, list(self.places))
        for number in self._passed:
            self.in_flight.pop(number, None)
        self._passed = []
"""
FINISH = """
    self.finished = True
    for task_id in list(self.arrived):
        self.passed(task_id, yielded=False)
"""
BODIES = {"begin": BEGIN, "heard": HEARD, "passed": PASSED, "finish": FINISH}
IF_PLACE = "if place is not None:"
MERGED = "{**(self.places[worker_id] or {}), **place}"
ARRIVES = "self.arrived[message.task_id] = (message.worker_id, message.place)"
COUNTS_NOW = """if message.place is not None:
                self.places[message.worker_id] = {**(self.places[message.worker_id] or {}), **message.place}"""
RESUMED = """self.places[message.worker_id] = message.place
            self.snapshot.places[message.worker_id] = message.place"""
SNAPSHOT = "self.snapshot = Snapshot(self.steps, self.last_worker, list(self.places))"
REMOVE = "self.in_flight.pop(number, None)"
COUNT = "if yielded:\n            self.steps += 1"
LAST = "self.last_worker = worker_id"
APPEND = "self._passed.append(task_id)"
IS_FULL = "if len(self._passed) >= self.interval:"


def edited(mistake: str, *edits: tuple[str, str], **bodies: str) -> Wrong:
    return Wrong(mistake, *edits, **{**BODIES, **bodies})


WRONG = {
    "at_receipt": edited("a place that is ahead", (ARRIVES, f"{ARRIVES}\n            {COUNTS_NOW}")),
    "snapshot_at_receipt": edited(
        "a place that is ahead", (ARRIVES, f"{ARRIVES}\n            {COUNTS_NOW}\n                {SNAPSHOT}")
    ),
    "all_that_arrived": edited(
        "a place that is ahead",
        (
            IF_PLACE,
            "for k, there in self.arrived.values():\n            self.places[k] = there or self.places[k]\n        "
            f"{IF_PLACE}",
        ),
    ),
    "arrived_is_no_more_in_flight": edited(
        "loses what was in flight", (ARRIVES, f"{ARRIVES}\n            self.in_flight.pop(message.task_id, None)")
    ),
    "interval_in_steps": edited("no snapshot", (IS_FULL, "if self.steps % self.interval == 0:")),
    "resumed_is_left_in_arrived": edited(
        "the second epoch",
        (RESUMED, f"{RESUMED}\n            self.arrived[message.task_id] = (message.worker_id, message.place)"),
    ),
    "the_end_replaces_a_place": edited(
        "loses parts of a place",
        ("self.finished = True", "self.finished = True\n        self.places = [None] * len(self.places)"),
    ),
    "nothing_is_in_flight": edited("loses what was in flight", (REMOVE, "self.in_flight.clear()")),
    "always_in_flight": edited("yields batches again", (REMOVE, "pass")),
    "no_snapshot": edited("no snapshot", (SNAPSHOT, "pass"), (REMOVE, "pass")),
    "only_the_first": edited("no snapshot", (IS_FULL, "if self._passed == [task_id] and self.snapshot.steps == 0:")),
    "none_is_a_place": edited(
        "a place that is behind",
        (IF_PLACE, f"if place is None:\n            self.places[worker_id] = None\n        {IF_PLACE}"),
    ),
    "no_places": edited("a place that is behind", (f"self.places[worker_id] = {MERGED}", "pass")),
    "first_place_only": edited(
        "a place that is behind", (IF_PLACE, "if place is not None and self.places[worker_id] is None:")
    ),
    "old_parts_win": edited("a place that is behind", (MERGED, "{**place, **(self.places[worker_id] or {})}")),
    "parts_are_all": edited("loses parts of a place", (MERGED, "place")),
    "last_worker_stays": edited("forgets whose turn it is", (LAST, "pass")),
    "next_worker": edited(
        "forgets whose turn it is", (LAST, "self.last_worker = (worker_id + 1) % max(self.num_workers, 1)")
    ),
    "last_that_arrived": edited(
        "forgets whose turn it is",
        (ARRIVES, f"{ARRIVES}\n            self.last_worker = message.worker_id"),
        (LAST, "pass"),
    ),
    "an_error_has_no_turn": edited("forgets whose turn it is", (LAST, f"if yielded:\n            {LAST}")),
    "an_error_is_a_batch": edited("counts what is no batch", (COUNT, "self.steps += 1")),
    "an_error_is_nothing": edited("raises an error again", (COUNT, f"{COUNT}\n        else:\n            return")),
    "begins_at_none": edited("counts what is no batch", ("self.steps = snapshot.steps", "self.steps = 0")),
    "begins_without_the_last": edited(
        "the second stop",
        (
            "self.snapshot = snapshot\n",
            "self.snapshot = Snapshot(snapshot.steps, self.num_workers - 1, list(snapshot.places))\n",
        ),
    ),
    "begins_without_places": edited("the second stop", ("list(snapshot.places)", "[None] * len(snapshot.places)")),
    "begins_without_the_snapshot": edited(
        "the second stop",
        ("self.snapshot = snapshot\n", "self.snapshot = Snapshot(0, snapshot.last_worker, list(snapshot.places))\n"),
    ),
    "shares_the_list": edited(
        "between two snapshots", (SNAPSHOT, SNAPSHOT.replace("list(self.places)", "self.places"))
    ),
    "shares_what_was_loaded": edited("between two snapshots", ("list(snapshot.places)", "snapshot.places")),
    "changes_a_place": edited(
        "between two snapshots",
        (
            f"self.places[worker_id] = {MERGED}",
            "self.places[worker_id] = self.places[worker_id] or {}\n            self.places[worker_id].update(place)",
        ),
    ),
    "a_snapshot_each_time": edited("between two snapshots", (IS_FULL, "if True:")),
    "passed_is_no_more_in_flight": edited(
        "between two snapshots", (REMOVE, "pass"), (APPEND, f"{APPEND}\n        self.in_flight.pop(task_id, None)")
    ),
    "after_so_many_batches": edited("no snapshot", (IS_FULL, "if yielded and self.steps % self.interval == 0:")),
    "resumed_is_nothing": edited("the second epoch", (RESUMED, "pass")),
    "resumed_after_the_snapshot": edited(
        "the second epoch", (RESUMED, "self.places[message.worker_id] = message.place")
    ),
    "resumed_waits": edited(
        "the second epoch", (RESUMED, "self.arrived[-1 - message.worker_id] = (message.worker_id, message.place)")
    ),
    "leaves_the_last": edited("the end of an epoch", ("self.passed(task_id, yielded=False)", "pass")),
    "drops_the_last": edited(
        "the end of an epoch", ("self.passed(task_id, yielded=False)", "del self.arrived[task_id]")
    ),
    "never_finishes": edited("the end of an epoch", ("self.finished = True", "pass")),
    "only_with_workers": edited("raises", ("self.arrived.pop(task_id, (0, None))", "self.arrived.pop(task_id)")),
    "the_newest": edited(
        "without order",
        (
            REMOVE,
            "for older in [k for k in self.in_flight if k <= number]:\n                    del self.in_flight[older]",
        ),
    ),
    "stores_no_none": edited(
        "forgets whose turn it is", (ARRIVES, f"if message.place is not None:\n                {ARRIVES}")
    ),
    "keeps_arrived": edited("keeps what has passed", ("self.arrived.pop(task_id", "self.arrived.get(task_id")),
    "no_message": edited("comes to an end", ("\n        return message", "")),
}

RIGHT = {
    "in plain words": BODIES,
    "new lists": {
        "begin": """
            self.snapshot, self._passed = snapshot, ()
            self.steps, self.last_worker = snapshot.steps, snapshot.last_worker
            self.now = dict(enumerate(snapshot.places))
        """,
        "heard": """
            match message:
                case Resumed():
                    self.now = {**self.now, message.worker_id: message.place}
                    self.snapshot = Snapshot(0, self.last_worker, [self.now[k] for k in sorted(self.now)])
                case Result():
                    self.arrived |= {message.task_id: (message.worker_id, message.place)}
            return message
        """,
        "passed": """
            its = self.arrived.pop(task_id, None) or (0, None)
            self.now = {**self.now, its[0]: {**(self.now.get(its[0]) or {}), **(its[1] or {})}}
            self.steps, self.last_worker = self.steps + int(yielded), its[0]
            self._passed = (*self._passed, task_id)
            if len(self._passed) < self.interval:
                return
            self.snapshot = Snapshot(self.steps, its[0], [self.now[k] for k in sorted(self.now)])
            self.in_flight = {k: keys for k, keys in self.in_flight.items() if k not in self._passed}
            self._passed = ()
        """,
        "finish": """
            while self.arrived:
                self.passed(min(self.arrived), False)
            self.finished = True
        """,
    },
    "a log": {
        "begin": """
            self.snapshot, self.steps = snapshot, snapshot.steps
            self._passed = []
        """,
        "heard": """
            if isinstance(message, Result):
                self.arrived[message.task_id] = message.worker_id, message.place
            else:
                self.snapshot.places[message.worker_id] = message.place
            return message
        """,
        "passed": """
            worker_id, place = self.arrived.get(task_id, (0, None))
            self.arrived.pop(task_id, None)
            self._passed.append((task_id, worker_id, place))
            self.steps = self.steps + 1 if yielded else self.steps
            if len(self._passed) == self.interval:
                places = self.snapshot.places[:]
                for number, who, where in self._passed:
                    if number in self.in_flight:
                        del self.in_flight[number]
                    if where:
                        places[who] = dict(places[who] or {}) | where
                self._passed.clear()
                self.snapshot = Snapshot(self.steps, worker_id, places)
        """,
        "finish": """
            self.finished = True
            for task_id, _ in sorted(self.arrived.items()):
                self.passed(task_id, False)
        """,
    },
    "all at the snapshot": {
        "begin": """
            self.steps = snapshot.steps
            self.snapshot = snapshot
            self._passed = []
            self.since = {}
        """,
        "heard": """
            if isinstance(message, Resumed):
                self.snapshot.places[message.worker_id] = message.place
                return message
            self.arrived[message.task_id] = (message.worker_id, message.place)
            return message
        """,
        "passed": """
            worker_id, place = self.arrived.pop(task_id) if task_id in self.arrived else (0, None)
            if place is not None:
                self.since.setdefault(worker_id, {}).update(place)
            self.steps += 1 if yielded else 0
            self._passed += [task_id]
            if len(self._passed) % self.interval == 0:
                places = list(self.snapshot.places)
                for number in self.since:
                    places[number] = {**(places[number] or {}), **self.since[number]}
                self.snapshot, self.since = Snapshot(self.steps, worker_id, places), {}
                while self._passed:
                    self.in_flight.pop(self._passed.pop(), None)
        """,
        "finish": """
            for task_id in [*self.arrived]:
                self.passed(task_id, yielded=False)
            self.finished = True
        """,
    },
}
