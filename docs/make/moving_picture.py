"""The moving picture at the top of README.md: the step-through of a simulated run, one event after the other.

python -m docs.make.moving_picture docs/pictures/demo.gif
"""

from __future__ import annotations

import base64
import io
import itertools
import sys
import tempfile
from pathlib import Path

from PIL import Image

import minidl
import tracing
from minidl.events import Kind
from minidl.world.simulated import simulate, sleep
from tests.tracing.views import browser
from tracing.views.batch_colours import ON_PAPER
from tracing.views.step_through import step

WINDOW = 1260, 620  # px
SHOWN_PART = """(() => {
  document.querySelector("#event").style.maxWidth = `${document.querySelector("#board").offsetWidth}px`;
  const [event, board] = ["#event", "#board"].map((each) => document.querySelector(each).getBoundingClientRect());
  const bottoms = [...document.querySelectorAll("#board *")].map((each) => each.getBoundingClientRect().bottom);
  return [board.left - 8, event.top - 6, board.width + 16, Math.max(...bottoms) - event.top + 12];
})()"""  # the event in words, and the state after it
GO = """new Promise((done) => {{
  addEventListener("hashchange", () => done(), {{ once: true }}); // the page's own listener comes first
  location.hash = "k={}";
}})"""
PAUSE, STORY = 250, 1500  # ms that an event is shown, and one that the story is about
COLOURS = 64
BATCHES = range(1, 7)  # that are followed: the first is made while the workers are started
SHOWN = {  # not: each end of a pipe, the slots, when a thread begins to wait
    *(Kind.KEYS_DRAWN, Kind.PUT, Kind.GOT, Kind.FETCH_BEGIN, Kind.COLLATE_BEGIN, Kind.RECEIVED, Kind.STORED),
    *(Kind.RELEASED, Kind.YIELDED),
}
TOLD = {Kind.STORED, Kind.YIELDED}


class Uneven(minidl.Dataset[int]):
    """Sample 2 takes six times as long as the others."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, key: int) -> int:
        sleep(0.060 if key == 2 else 0.010)
        return key


def program() -> None:
    """Batches 3 and 5 come early: 2 is slow."""
    for _ in minidl.DataLoader(Uneven(), batch_size=1, num_workers=2):
        sleep(0.004)


def chosen(trace: tracing.Trace) -> list[int]:
    """Which events: their positions in the trace."""
    return [k for k, event in enumerate(trace.events) if event["kind"] in SHOWN and event["task"] in BATCHES]


def frames(trace: tracing.Trace) -> tuple[list[Image.Image], list[int]]:
    """A picture of each chosen event, and for how many ms it is shown."""
    with tempfile.TemporaryDirectory() as folder, browser.Browser(browser.find() or "", Path(folder)) as chromium:
        file = Path(folder, "page.html")
        file.write_text(step(trace).html, encoding="utf-8")
        chromium.page.open(file.as_uri(), *WINDOW)
        part = dict(zip(("x", "y", "width", "height"), chromium.page.evaluate(SHOWN_PART), strict=True))
        shown, times = [], []
        for k in chosen(trace):
            chromium.page.evaluate(GO.format(k))
            shown.append(picture(chromium.page, part))
            times.append(STORY if trace.events["kind"][k] in TOLD else PAUSE)
    return shown, times


def picture(page: browser.Page, part: dict[str, float]) -> Image.Image:
    data = page.call("Page.captureScreenshot", format="png", clip={**part, "scale": 1})["data"]
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def palette_of(shown: list[Image.Image]) -> Image.Image:
    """The colours of all frames, those of the batches among them although their boxes are small: as they are, and pale
    (in a slot, on its way)."""
    width, height = shown[0].size
    sample = Image.new("RGB", (width, 3 * height))
    for place in (0, 1):
        sample.paste(shown[(1 + place) * len(shown) // 3], (0, place * height))
    for number, (colour, alpha) in enumerate(itertools.product(ON_PAPER, (0, 0.5))):
        patch = Image.blend(Image.new("RGB", (1, 1), colour), Image.new("RGB", (1, 1), "#f6f7f9"), alpha)
        left, right = (width * edge // (2 * len(ON_PAPER)) for edge in (number, number + 1))
        sample.paste(patch.resize((right - left, height)), (left, 2 * height))
    return sample.quantize(COLOURS)


def main() -> int:
    if browser.find() is None:
        print("the moving picture needs Chromium: apt install chromium", file=sys.stderr)
        return 1
    shown, times = frames(tracing.load(simulate(program)))
    palette = palette_of(shown)  # one for all: or its changes would flicker
    first, *others = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in shown]
    path = Path(sys.argv[1])
    first.save(path, save_all=True, append_images=others, duration=times, loop=0, optimize=False)
    print(f"{path}: {len(shown)} events, {sum(times) / 1000:.0f} s, {path.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
