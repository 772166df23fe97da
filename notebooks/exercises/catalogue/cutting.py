"""A run that waits for long, cut short: in a picture of seconds nobody sees the microseconds that matter."""

from __future__ import annotations

from dataclasses import replace

from minidl.world.simulated import simulate
from minidl.world.simulated.cores import SECOND
from minidl.world.simulated.machine import BEGIN, STEP
from notebooks.exercises.protocol import Broken


def cut(broken: Broken) -> Broken:
    """The same run up to its first wait of a second or more, if what is wrong with it shows by then."""
    outcome = broken.outcome
    assert outcome is not None
    if broken.waits == "None":  # it goes on for ever, and does not wait
        broken = replace(broken, waits="")
    times = [event[0] for event in outcome.events]
    last = next((k for k in range(len(times) - 1) if times[k + 1] - times[k] >= SECOND), None)
    forever = outcome.deadlock or outcome.endless
    if last is None or not (forever or all(event <= last for event in broken.breach.events)):
        return broken
    # A step takes STEP, an event one nanosecond more: so many steps have been taken when the last event was said.
    steps = (times[last] - BEGIN - (last + 1)) // STEP
    options = {**outcome.options, "most_steps": steps}
    shorter = simulate(outcome.program, schedule=outcome.token, **options)
    shown = [min(event, last, len(shorter.events) - 1) for event in broken.breach.events]
    return replace(broken, breach=replace(broken.breach, events=shown), outcome=shorter)
