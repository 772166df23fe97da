"""Exercise 16: the free list of a worker's slots."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

import minidl
from minidl.events import Kind
from minidl.transport import NO_SLOT
from minidl.world.simulated import Outcome, simulate
from notebooks.exercises import waiting_lines
from notebooks.exercises.answers import Answer
from notebooks.exercises.attempts import MISSPELT, SLIPS, with_real_processes
from notebooks.exercises.catalogue.slot_trials import MOST, SHOWN, STEPS, State, Table, by_chance, by_steps
from notebooks.exercises.exercise import Exercise, Finding
from notebooks.exercises.failed_runs import RAISES, explained
from notebooks.exercises.heartbeat import beat
from notebooks.exercises.programs import Keys, without_status_checks
from notebooks.exercises.protocol import ALWAYS, Breach, Rule, Run, gives, play

FLOATS = 10_000  # of a batch: too many to follow a pickle through a real pipe
STEPS_OF_A_RUN = 4_000  # at most


def filled(keys: list[int]) -> torch.Tensor:
    return torch.full((FLOATS,), float(keys[0]))


@without_status_checks()
def load(keeps: int, *lengths: int) -> list[float]:
    """Epochs of so many batches; an earlier one may be given up. The caller keeps the last `keeps` batches, and looks
    at each when it is about to drop it."""
    options: dict[str, Any] = {"num_workers": 1, "batch_size": 1, "collate_fn": filled, "persistent_workers": True}
    loader: Any = minidl.DataLoader(Keys(lengths[-1]), **options)
    seen: list[float] = []
    kept: deque[Any] = deque()
    for length in lengths:
        iterator = iter(loader)
        for _ in range(length):
            kept.append(next(iterator))
            if len(kept) > keeps:
                seen.append(_value(kept.popleft()))
    return seen + [_value(batch) for batch in kept]


def keeping() -> list[float]:
    return load(2, 2, 6)


def dropping() -> list[float]:
    return load(0, 8)


def _value(batch: torch.Tensor) -> float:
    """The number that all of a batch is; -1: it is not all the same."""
    return float(batch[0]) if bool((batch == batch[0]).all()) else -1.0


BATCHES = [float(key) for key in [*range(2), *range(6)]]  # of keeping


def grade(answer: Answer) -> Finding | None:
    with answer.at_work():
        finding = _alone(answer)
        for program, words, rule in PROGRAMS:
            chance = 0 if finding else 40  # a run that breaks by chance takes long to shorten, and the trial tells more
            broken = play(program, [*ALWAYS, rule], chance=chance, most_steps=STEPS_OF_A_RUN)
            if broken is None:
                continue
            cause = "The free list is right alone, but not in a loader. Look at what comes before the red line."
            told = explained(answer, broken, broken.rule, words, {broken.rule: cause})
            if finding is None:
                return told
            if finding.mistake != "raises":
                finding.broken = told.broken
                finding.seen.append(f"Below: what it does to {words}.")
            break
        if finding is not None:
            return finding
    return with_real_processes(answer, keeping, BATCHES)


def _alone(answer: Answer) -> Finding | None:
    trials = [functools.partial(by_steps, steps) for steps in STEPS]
    trials += [functools.partial(by_chance, seed) for seed in range(60)]
    for trial in trials:
        beat("a trial of the free list alone")
        outcome = simulate(trial, draws=False)
        finding = _found(answer, outcome)
        if finding is not None:
            finding.seen += waiting_lines.where(trial, outcome.token, answer.path, **outcome.options).values()
            return finding
    return None


def _found(answer: Answer, outcome: Outcome) -> Finding | None:
    table = Table.last
    told = [*["..."] * (len(table.told) > SHOWN), *table.told[-SHOWN:]]
    call = f"{', '.join(told)}   (there may be {MOST} slots)"
    all_out = len(table.slots) == MOST and all(each.state is not State.FREE for each in table.slots.values())
    if outcome.deadlock:
        return Finding("waits for a slot", call, "grant waits for ever", "NO_SLOT", CAUSES["waits for a slot"])
    if outcome.error is not None:
        got = answer.raised(outcome.error)
        if all_out and table.told[-1] == "grant":
            name = "fails when no slot is free"
            return Finding(name, call, got, "NO_SLOT, and not fresh", CAUSES[name])
        if table.unused:
            name = "takes an unused slot for a loan"
            return Finding(name, call, got, "the slot is free again", CAUSES[name])
        cause = MISSPELT if isinstance(outcome.error, SLIPS) else RAISES
        return Finding("raises", call, got, "nothing raises here", cause)
    if table.mistake is None:
        return None
    return Finding(table.mistake.name, call, table.mistake.got, table.mistake.expected, CAUSES[table.mistake.name])


CAUSES = {
    "grants no pair": "grant returns two things: the slot, and whether the worker must make new memory for it. Without "
    "a free slot they are NO_SLOT and False.",
    "waits for a slot": "All slots are lent, and the caller may keep its batches for ever: nothing has to come back. "
    "Grant NO_SLOT: the batch then gets memory of its own. And `get` of an empty mailbox waits: ask qsize() first.",
    "fails when no slot is free": "The caller keeps its batches, so all slots are out, and there may be no more. That "
    "is not an error: grant NO_SLOT, and the batch gets memory of its own.",
    "takes an unused slot for a loan": "Two things come back through the mailbox: loans (batches that are gone), and "
    "bare numbers of slots that were granted and not used, because the message needed no memory.",
    "never takes a batch's slot back": "The batch is gone, and its loan is in the mailbox. Its slot must be free for "
    "the next grant, or memory grows as if there were no slots. Who looks into the mailbox, and when?",
    "loses slots that were not used": "A worker's exception needs no memory, so its slot came back as a bare number. "
    "It is free again. (If a loan is still noted for that slot: when was it over?)",
    "loses the slots of skipped tasks": "`reclaim` is called when the worker answers no more of what it was sent. "
    "Slots that were granted to those tasks come back no more by themselves: free all that is not lent.",
    "loses retired slots": "A retired slot's memory must not be written again, but its number can be: when it is back, "
    "it is free. A grant of it says that it is fresh.",
    "makes a slot while one is free": "Slots are used again so that their pages are there. Take back everything that "
    "is in the mailbox first; make a new slot only if none is free.",
    "too few slots": "None is free, but there are fewer than `_most`: make one, with the next number.",
    "more slots than there may be": "There are `_most` slots already, numbered from 0. A caller that keeps its batches "
    "would make them without end, and their memory is never given back. Grant NO_SLOT.",
    "grants what is out": "A slot is out from its grant until it comes back through the mailbox. Granted before that, "
    "it is written over what is being made, or what the caller still has. Nothing raises, and the training goes on "
    "with wrong data.",
    "reclaim frees what is lent": "The worker answers no more, but the caller may still have batches of before: what "
    "is in `_lent` stays out until its loan comes back.",
    "an old loan ends a new one": "Ctrl-C came after a batch was unpacked, and it was unpacked again: the slot was "
    "lent twice, and the first loan is over. `_lent` says which loan counts. Is it this one?",
    "a slot is free twice": "The same slot is on the free list twice, so two tasks get it, and their batches mix. Can "
    "something come back that is no longer out? What if the same comes back twice, or after `reclaim`?",
    "a retired slot's memory is used again": "Main has forked while the batch was lent, and the child sees the same "
    "pages for as long as it lives. When such a slot is granted again, the worker must make new memory for it: fresh "
    "is True.",
    "makes new memory without need": "`fresh` makes the worker give up the memory it has. It is for a slot that was "
    "retired, until the new memory has come.",
    "a batch changes while it is lent": "Something has written to a batch's memory while the caller had it. Which of "
    "these functions may write there? None.",
}


def _slots_suffice(run: Run) -> Iterator[Breach]:
    for position in run.of(Kind.SLOT_LENT):
        if run.events["value"][position] == NO_SLOT:
            yield Breach("a batch was granted no slot, though the program keeps none", [int(position)])


SLOTS_SUFFICE = Rule("slots are used again", "while few batches are kept, every task is granted a slot", _slots_suffice)

PROGRAMS: tuple[tuple[Callable[[], Any], str, Rule], ...] = (
    (
        keeping,
        "a loader with one worker: the program keeps its last two batches, and gives up an epoch",
        gives(BATCHES),
    ),
    (dropping, "a loader with one worker: the program drops each batch", SLOTS_SUFFICE),
)

EXERCISE = Exercise(
    number=16,
    name="free_list",
    title="the free list",
    references=(
        "minidl.transport.lending:Unpacker.grant",
        "minidl.transport.lending:Unpacker._take_back",
        "minidl.transport.lending:Unpacker.reclaim",
    ),
    task="""
    A worker lays its batches into slots: memory that main sees too, and that is used again. Main owns the list of the
    free ones, one list per worker, and with each task it sends the number of a slot. If main grants a slot while the
    caller still has what lies in it, the next batch is written over it, and nothing raises.

    `grant` returns (slot, fresh) for a task that is about to be sent. It first takes back what has come back; then it
    grants a slot that is free. Only if none is free does it make a new one: 0, 1, 2, ..., at most `_most` of them. If
    all are out, it grants NO_SLOT: it never waits, as the caller may keep its batches for ever.

    `_take_back` empties the mailbox `_back`. In it are loans that are over: all of that batch is gone. And bare
    numbers: slots that were granted and not used, since what the worker sent needed no memory. Ctrl-C can interrupt an
    `unpack`, which is then called again, so beware: the same thing may come back twice, and a loan may be an old one,
    whose slot has been lent anew (see `_lent`).

    If main has forked while a batch was lent, its loan is `retired`: the child still sees that memory. The slot is free
    when it comes back, but it is granted as `fresh`: the worker must make new memory for it. It stays in `_fresh` until
    that memory has come: `unpack` takes it out, as the task it was granted to may be skipped.

    `reclaim` is called when the worker will answer no more of the tasks it was sent: a new epoch has begun, and it has
    said so. What they were granted is free again; what is lent is not, and a late batch of theirs may still be.

    (You may use `_count`, `_free` and `_out` in any way, or fields of your own; the other fields belong to others, too:
    `unpack`, which the pin thread may call, and whatever lets go of a batch. You may leave out the calls of `emit`,
    without which a timeline does not show the slots, and `_thin_out` and `_recent`, which give pages to the system.)
    """,
    legend={
        "self._count": "how many slots there are so far: 0 at the beginning",
        "self._most": "how many there may be: 3, or any other number",
        "self._free": "[2, 0]: the slots that are free",
        "self._out": "{1}: the others: granted or lent",
        "self._lent": "{1: loan}: slot -> the loan that counts. `unpack` writes it when a batch comes; remove it when "
        "the loan is over",
        "self._fresh": "{2}: slots whose memory must not be used again. `unpack` takes one out when new memory comes",
        "self._back": "a mailbox: qsize() is how many things are in it, get() takes one, and waits if there is none",
        "loan": "a Loan: .slot, .retired, and for `emit` .epoch_id, .task_id",
        "emit(SLOT_GRANTED, ...)": "..., epoch_id, task_id, self._worker_id, value=slot) records a grant, and "
        "SLOT_FREE, with the loan's epoch_id and task_id, that it is over",
    },
    hints=(
        "Each slot is free, granted or lent. Write down what moves it from one to the next, and who tells you. Which "
        "of these moves can be told twice?",
        "Let every slot be either in `_free` or in `_out`, never in both. What comes back counts only if its slot is "
        "in `_out`, and, if there is a loan in `_lent` for that slot, only if it is that very loan.",
        "_take_back: while self._back.qsize(): back = self._back.get(); slot = back.slot if it is a Loan, else back; "
        "skip it if slot not in self._out or self._lent.get(slot, back) is not back; for a Loan, del self._lent[slot], "
        "and if it is retired, add the slot to _fresh; then move the slot from _out to _free. reclaim: take back; then "
        "_out is what is in _lent, and _free all the others below _count.",
    ),
    grade=grade,
    notebook="14-what-moving-a-batch-costs.ipynb",
    protocol=True,
)
