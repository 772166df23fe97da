"""Bugs of stopping and going on: each would let a batch be lost, come twice, or be another."""

from __future__ import annotations

import functools
from typing import Any

from minidl import parallel
from minidl.checkpoint import draws, position, source
from minidl.world.simulated.faults import Fault
from tests.minidl.simulated.mutants import Edit, Mutant
from tests.minidl.simulated.stopping import Leg
from tests.minidl.simulated.worth_stopping import trainings

TRAININGS = trainings()


def mutant(name: str, training: str, state: int, lesson: str, broken: str, edit: Edit, **options: Any) -> Mutant:
    """Found in this training, by going on from this one of its states."""
    chosen = TRAININGS[training]
    program = functools.partial(chosen.stopped, chosen.begin(), state)
    if options.get("fault"):  # of the process that goes on
        program = functools.partial(chosen.train, Leg(chosen, chosen.begin()).disk[state], [])
    return Mutant(name, "—", program, lesson, broken, (edit,), transport="slots", drawn=False, **options)


STOP_MUTANTS = [
    mutant(
        "the place of a worker counts when its batch is received",
        "counting",
        2,
        "A worker tells its dataset's place with every batch. If main takes it for the place to go on from as soon as "
        "it arrives, the batches that have been made ahead are made a second time, from a place behind them. It "
        "counts when the batch is yielded.",
        "came, and",
        Edit(
            position.Position,
            "heard",
            "    self.arrived[message.task_id] = message.worker_id, message.place\n",
            "    self.arrived[message.task_id] = message.worker_id, None\n"
            "    if message.place:\n"
            "        self.places[message.worker_id] = {**(self.places[message.worker_id] or {}), **message.place}\n",
        ),
        bounds={"delays": 1, "faults": 0},
    ),
    mutant(
        "keys in flight are forgotten",
        "in turn",
        3,
        "The sampler is ahead of the training loop by all that is in flight. A run that goes on where the sampler is "
        "skips these batches. Their keys are saved, and come first.",
        "did not come",
        Edit(position.Position, "state_dict", "[*self.in_flight.values(), *draws.pending]", "[]"),
    ),
    mutant(
        "another worker has the first turn",
        "streams in batches",
        3,
        "Each worker has a stream of its own, and a place in it. If the turn does not go on from the worker that had "
        "the last one, the batches come in another order.",
        "came, and",
        Edit(parallel.ParallelIterator, "_reset", "(saved.last_worker + 1)", "saved.last_worker"),
    ),
    mutant(
        "a batch that failed is not counted",
        "samples that fail, every second",
        2,
        "With snapshot_every_n_steps the batches since the last snapshot are made again. One that failed was no step, "
        "but it had its turn: if it is not made again, the caller gets its error a second time.",
        "came, and",
        Edit(position.Position, "state_dict", "len(self._passed)", "self.steps - self.snapshot.steps"),
    ),
    mutant(
        "what a worker tells at the end of its stream is dropped",
        "own places",
        9,
        "The last place of a worker comes with no batch, but with the end of its stream. A dataset that keeps its "
        "place from one epoch to the next would go on from the batch before.",
        "did not come",
        Edit(position.Position, "finish", "self.passed(task_id, yielded=False)", "pass"),
    ),
    mutant(
        "a new epoch begins without places",
        "counting, persistent",
        7,
        "Workers that outlive an epoch bring their datasets and their random numbers along. Between the beginning of "
        "the next epoch and its first batch nothing but their acknowledgements tells where they are.",
        "came, and",
        Edit(position.Position, "heard", "self.snapshot.places[message.worker_id] = message.place", "message.place"),
    ),
    mutant(
        "nobody remembers that the sampler has ended",
        "a generator of its own",
        2,
        "Some samplers draw random numbers when they are asked for more than they have. If they are asked once more "
        "by the run that goes on, its next epoch is shuffled in another way.",
        "came, and",
        Edit(position.Position, "state_dict", "draws.ended", "False"),
    ),
    mutant(
        "the place of a sampler is no copy",
        "a sampler with places",
        3,
        "Some iterators hand out the very dict that they go on changing. What is kept for the batches in flight must "
        "be a copy.",
        "before the place that was loaded",
        Edit(draws, "copied_state", "copy.deepcopy(thing.state_dict())", "thing.state_dict()"),
    ),
    mutant(
        "errors are swallowed while a stream is wound forward",
        "streams in batches",
        3,
        "A batch that has failed before fails again when its stream is begun once more, which is expected. Another "
        "error is not: if it is swallowed, the stream has ended, and its batches are silently missing.",
        "came, and",
        Edit(source.Source, "wind", "self.batches not in self.failed and", "False and"),
        bounds={"delays": 0, "faults": 1},
        fault=Fault.RAISE,
    ),
    mutant(
        "the error of a dataset that cannot tell its place is raised once",
        "places",
        3,
        "The dataset cannot tell where it is. The batch that came with this error is lost to a run that goes on, so "
        "the error takes its stead, and is raised again by every further next(). Otherwise the batch is silently "
        "missing.",
        "and then continued",
        Edit(parallel.ParallelIterator, "_next_data", "self._failure = str(error)", "pass"),
        bounds={"delays": 0, "faults": 1},
    ),
]
