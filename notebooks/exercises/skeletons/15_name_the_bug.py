"""Exercise 15: name the bug.

Each of eight loaders has a bug that real loaders have had, and each has left a trace. Name the
bugs.

`python -m notebooks.exercises.bugs` writes the traces into a folder beside this file,
15_name_the_bug: a.trace to h.trace, and a timeline of each, a.png to h.png. Each is a run in the
simulated world, the same every time. Look at them with `python -m tracing step a.trace -o a.html`,
`python -m tracing sequence a.trace -o a.svg`, or in Python: tracing.load("a.trace").events.

Write a name from the list below beside each letter. For a wrong name, the check shows what in the
trace contradicts it, and the event to look at. You need not fill in all of them before you check.

Check it with `python -m notebooks.exercises check 15`; `hint 15` helps.
It goes with notebooks/10-shutting-down.ipynb.
"""

ANSWERS = {
    "a": "",
    "b": "",
    "c": "",
    "d": "",
    "e": "",
    "f": "",
    "g": "",
    "h": "",
}

# The names. Some belong to none of the traces.
#   a new task is sent on receipt instead of on yield
#   a worker is marked as finished twice
#   any message is taken for the acknowledgement of a new epoch
#   nobody looks whether the worker is alive
#   process exit joins a feeder that is blocked
#   the done event has a lock
#   the error after a death is forgotten
#   the final message is lost, and nothing stands behind the join
#   the iterator is dropped half way and the workers are never told
#   the round-robin is not reset
#   the workers are stopped before the pin thread
#   without order, nobody counts what a worker has
