"""How smoothly the playground's page moves in a browser: what a picture costs, and how often one comes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.table import Table, verdict
from tests.tracing.views import browser
from tests.tracing.views.browser import Browser
from tracing.views.playground.page import render

# First it plays, and the times from frame to frame are taken. Then pictures from all over the epoch are drawn, and the
# browser gets time for its own work between them.
FRAMES = """
(async (frames) => {
  const gaps = [], costs = [];
  let last = null;
  play(true);
  await new Promise((done) => {
    const look = (time) => {
      if (last !== null) gaps.push(time - last);
      last = time;
      if (gaps.length < frames) requestAnimationFrame(look);
      else done();
    };
    requestAnimationFrame(look);
  });
  play(false);
  for (let number = 0; number < frames; number++) {
    if (number % 20 === 0) await new Promise((done) => setTimeout(done, 20));
    const begin = performance.now();
    now = (run.end * number) / frames;
    draw(16);
    costs.push(performance.now() - begin);
  }
  return [gaps, costs];
})(COUNT)
"""


@dataclass
class Playing:
    """Of one setting, in ms."""

    workers: int
    frame: float  # from one frame to the next, median
    picture: float  # to draw one, median
    worst: float  # 99 of 100 take less


def measure(program: str, directory: Path, frames: int, workers: int) -> Playing:
    """With full queues, a pin thread, and a batch in every third of a second."""
    path = directory / "page.html"
    path.write_text(render(), encoding="utf-8")
    with Browser(program, directory) as running:
        running.page.open(f"{path.as_uri()}#workers={workers}&prefetch=8&shape=varied&pin=1", still=False)
        gaps, costs = map(sorted, running.page.evaluate(FRAMES.replace("COUNT", str(frames))))
    return Playing(workers, gaps[len(gaps) // 2], costs[len(costs) // 2], costs[len(costs) * 99 // 100])


def table(frames: int) -> Table:
    """Of few workers and of the most. 60 frames a second are one every 16.7 ms."""
    made = Table("The playground's page", ("", "measured", "unit", "goal, at most"))
    for workers in (4, 16):
        with tempfile.TemporaryDirectory() as directory:
            taken = measure(browser.find() or "", Path(directory), frames, workers)
        for what, value, goal in (
            ("from frame to frame, median", taken.frame, 16.8),
            ("to draw a picture, median", taken.picture, 16),
            ("to draw a picture, 99th percentile", taken.worst, 16),
        ):
            made.rows.append((f"{what}: {workers} workers", f"{value:.2f}", "ms", verdict(value, goal, at_most=True)))
    return made
