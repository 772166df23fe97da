"""What to do after an error: the batches whose keys reproduce it."""

from __future__ import annotations

import re
import textwrap

import numpy as np

from tracing.analysis.measure.measures import Measures
from tracing.analysis.notes.run_end import died_in_a_step, ended_by, fatal_error
from tracing.trace.task_events import keys_of, position_of

ERRORS = {  # of no one batch
    "exited unexpectedly": "The worker had no batch then: what ended it stands in its own note, or in its stderr.",
    "Too many open files|items of ancdata": "Main ran out of open files. Each tensor from a worker is one for as long "
    "as the program keeps it: keep copies (clone(), item()) in place of batches, or raise `ulimit -n`.",
    "not (be )?pickle|n't (pickle|get local)": "A worker that is spawned gets the dataset and the functions pickled: "
    "make in the worker what cannot be (locks, open files, connections), leave it out in __getstate__, and define "
    "functions at the top of a module.",
}
DEBUGGER = (
    " If these keys fail with num_workers=0, a debugger shows why. If not, look at what the workers share, also with "
    "main: a file, a lock, a transaction that it has not committed."
)
REASONS = {
    "Bus error": " Shared memory (/dev/shm) is full, or a mapped file (a memmap) is shorter than what is read of it.",
    "differ in shape": " Make them alike in the dataset, also what is empty, or let a collate_fn pad or list them.",
    "a small one": " If it is too small, drop_last=True leaves it out.",
    "the last": " What is special about it: its labels, its size, a value?",
    "no workers": " What a dataset starts there needs num_workers=0, or threads in place of processes.",
    "is None": " Leave it out in a collate_fn, or see why the dataset returns None.",
}


def advice_after_error(measures: Measures) -> list[str]:
    """The batches whose keys reproduce the error."""
    tasks, trace, last = measures.tasks, measures.trace, measures.iterators[-1]
    last_epoch = tasks[(tasks["loader"] == last.loader) & (tasks["epoch"] == last.epochs[-1])]
    died = died_in_a_step(measures)
    batches = [described for row in last_epoch if (described := _failed_batch(measures, row, died))]
    error = fatal_error(trace, last)
    error_text = ended_by(trace) if error is None else str(trace.text(error))
    if not batches:
        return [what for pattern, what in ERRORS.items() if re.search(pattern, error_text)]
    text = f"Fix that first: {'; '.join(batches[:3])}{' (Bus error)' * ('Bus error' in error_text)}."
    return [text + next((said for why, said in REASONS.items() if why in text), DEBUGGER * bool(measures.num_workers))]


def _failed_batch(measures: Measures, row: np.void, died: int | None) -> str:
    """What happened to a batch, with its keys: "batch 9 on worker 1 raised (keys [9])"; "" if nothing did."""
    batch = row["loader"], row["epoch"], row["task"]
    failed = position_of(measures.trace, *batch, "failed")
    error = str(measures.trace.text(failed)) if failed >= 0 else ""
    if failed >= 0 or row["pin_failed"] >= 0:
        what = "called sys.exit()" if error.startswith("SystemExit") else "raised"
        what += ", as a sample is None" * bool("NoneType" in error and row["collate_begin"] >= 0)
        what += ", as a worker can have no workers" * ("not allowed to have children" in error)
        what += ", as its samples differ in shape" * bool(re.search("not resizable|equal size|must match", error))
    elif row["index_got"] >= 0 and (row["lost"] >= 0 or (row["collate_end"] < 0 and row["worker"] == died)):
        what = "was with the worker that died"
    elif row["yielded"] >= 0 > row["asked"] and died is None and ended_by(measures.trace):
        keys = keys_of(measures.trace, *batch)
        small = isinstance(keys, list) and len(keys) < (measures.config.get("batch_size") or 0)
        return f"batch {row['task']} was the last that main had{_in_words(keys, error)}{', a small one' * small}"
    else:
        return ""
    where = f"on worker {row['worker']}" if row["worker"] >= 0 else "in main"
    return f"batch {row['task']} {where} {what}{_in_words(keys_of(measures.trace, *batch), error)}"


def _in_words(keys: object, error: str) -> str:
    """The keys of a batch; and those of the samples that torch.stack names: "got [64] at entry 0 and [65] at
    entry 11"."""
    if keys is None:
        return ""
    keys = keys if isinstance(keys, list) else [keys]  # one, if batch_size is None
    shown = textwrap.shorten(str(keys), 60, placeholder=" ...]")
    entries = [int(each) for each in re.findall(r"(?:at entry|tensor number) (\d+)", error)]
    named = [f"entry {each} is {keys[each]}" for each in entries if each < len(keys)]
    return f" (keys {'; '.join([shown, *named])})"
