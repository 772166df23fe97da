"""What one step of the step-through's page costs in a browser, how large the page is, and how long it takes to make."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import tracing
from tests.tracing.traces import steady
from tests.tracing.views.browser import Browser
from tracing.views.step_through import step

EVENTS_A_BATCH = 17  # of `steady`

# A key, the state after it, the layout of the whole page: everything before the next frame can be painted.
# Every hundred steps the browser gets time for its own work; animations are on.
STEPS = """
(async (steps) => {
  const times = [];
  for (let step = 0; step < steps; step++) {
    if (step % 100 === 0) await new Promise((done) => setTimeout(done, 20));
    const begin = performance.now();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "KEY", bubbles: true }));
    document.body.getBoundingClientRect();
    times.push(performance.now() - begin);
  }
  return times;
})(COUNT)
"""


@dataclass
class Stepping:
    """What one page costs."""

    events: int
    workers: int
    seconds: float  # to make it
    megabytes: float
    median: float  # ms for a step
    worst: float  # ms: 99 of 100 steps take less


def measure(program: str, directory: Path, events: int, workers: int) -> Stepping:
    """Step forwards through a whole page of about `events` events, and back again."""
    count = steady(directory / "trace", events // EVENTS_A_BATCH, workers)
    trace = tracing.load(directory / "trace")
    begin = perf_counter()
    html = step(trace).html
    seconds = perf_counter() - begin
    path = directory / "page.html"
    path.write_text(html, encoding="utf-8")
    times: list[float] = []
    with Browser(program, directory) as browser:
        browser.page.open(path.as_uri(), still=False)
        for key in ("ArrowRight", "ArrowLeft"):
            times += browser.page.evaluate(STEPS.replace("KEY", key).replace("COUNT", str(count - 1)))
    times.sort()
    size = len(html.encode()) / 1e6
    return Stepping(count, workers, seconds, size, times[len(times) // 2], times[len(times) * 99 // 100])
