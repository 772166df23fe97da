"""Pictures can be read: no words overlap or are cut off, nothing crosses a digit, and what differs in colour differs in
grey. Over hard cases of the simulated world, and over real loads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox

import tracing
from minidl import DataLoader, Dataset
from minidl.transport import VARIABLE
from minidl.world.simulated import simulate
from minidl.world.simulated.simulation import sleep
from tests.minidl.simulated.programs import TORCHS_WAY, load
from tracing.views.batch_colours import DARK_ON_PAPER, DARK_ON_SCREEN, ON_PAPER, ON_SCREEN
from tracing.views.timeline import colours, timeline
from tracing.views.timeline.spans import Look

pytestmark = pytest.mark.timeout(120)
Recorded = Callable[[str], tracing.Trace]


# ---- hard cases


class Samples(Dataset[int]):
    """n samples; `seconds` is how long each takes, in virtual time."""

    def __init__(self, n: int, seconds: Callable[[int], float]) -> None:
        self.n, self.seconds = n, seconds

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, key: int) -> int:
        sleep(self.seconds(key))
        return key


def collated(samples: list[int]) -> list[int]:
    sleep(0.004)
    return samples


def train(loader: DataLoader[Any], seconds: float) -> None:
    for _ in loader:
        sleep(seconds)


def many_workers() -> None:
    train(DataLoader(Samples(200, lambda key: 0.05 + 0.01 * (key % 3)), num_workers=16, collate_fn=collated), 0.005)


def deep_queues() -> None:
    train(DataLoader(Samples(60, lambda key: 0.2 if key % 9 == 0 else 0.02), num_workers=3, prefetch_factor=8), 0.01)


def slow_training() -> None:
    train(DataLoader(Samples(30, lambda key: 0.005), num_workers=3), 0.04)


def four_digits() -> None:
    data = Samples(1020, lambda key: 0.004 + 0.003 * (key % 2))
    train(DataLoader(data, num_workers=2, collate_fn=collated), 0.003)


def pinned() -> None:
    data = Samples(16, lambda key: 0.004)
    train(DataLoader(data, num_workers=2, pin_memory="host", collate_fn=collated), 0.006)


def one_late() -> None:
    train(DataLoader(Samples(20, lambda key: 0.06 if key == 4 else 0.01), num_workers=2), 0.008)


CASES: dict[str, tuple[Callable[[], None], str, dict[str, Any]]] = {  # name -> program, transport, options
    "16 workers, 200 batches": (many_workers, "torch", {}),
    "prefetch 8": (deep_queues, "torch", {}),
    "a deep worker_result_queue": (slow_training, "torch", {}),
    "ids of four digits": (four_digits, "torch", {"batches": (1000, 1016)}),
    "summed up": (four_digits, "torch", {}),
    "pinned": (pinned, "torch", {}),
    "slots": (one_late, "slots", {}),
    "notes": (pinned, "torch", {"notes": [(150, "batch 9 was yielded where batch 8 was due"), (153, "and another")]}),
}  # fmt: skip


@functools.cache
def simulated(program: Callable[[], None], transport: str) -> tracing.Trace:
    return tracing.load(simulate(program, environment={VARIABLE: transport}))


@functools.cache
def drawn(name: str) -> Figure:
    program, transport, options = CASES[name]
    figure = timeline(simulated(program, transport), **options)
    figure.draw_without_rendering()
    return figure


# ---- words


def words_of(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is shown, and where it is (px)."""
    hidden = set()  # matplotlib has labels for ticks beyond the ends of an axis, too, and does not draw them
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        begin, end = sorted(axis.get_view_interval())
        hidden |= {tick.label1 for tick in axis.get_major_ticks() if not begin <= tick.get_loc() <= end}
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and text not in hidden]
    return [(text.get_text(), Text.get_window_extent(text)) for text in found]


def overlapping(boxes: Iterable[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    """Pairs of texts that share more than a pixel's width: the boxes of letters are a little larger than these."""
    found = []
    for (one, here), (other, there) in itertools.combinations(boxes, 2):
        wide = min(here.x1, there.x1) - max(here.x0, there.x0)
        tall = min(here.y1, there.y1) - max(here.y0, there.y0)
        if wide > 1 and tall > 0.25 * min(here.height, there.height):
            found.append((one, other))
    return found


REAL = ["in_order", "stream", "persistent", "failing", "dying", "slots of a real load", "serial"]


@pytest.mark.parametrize("name", [*CASES, *REAL])
def test_no_words_overlap_and_none_are_cut_off(recorded: Recorded, name: str) -> None:
    figure = drawn(name) if name in CASES else timeline(recorded(name.split()[0]))
    figure.draw_without_rendering()
    words = words_of(figure)
    assert len(words) > 10 and not overlapping(words)
    page = figure.bbox
    assert not [text for text, box in words if box.x0 < 0 or box.y0 < 0 or box.x1 > page.x1 or box.y1 > page.y1]


# ---- digits


def digits_of(figure: Figure) -> list[Text]:
    """The numbers in bars and boxes."""
    return [text for axes in figure.axes for text in axes.texts if text.get_text().isdigit()]


def paths_of(figure: Figure, chosen: Callable[[Any], bool]) -> list[tuple[float, Path]]:
    """(how far above other things it is drawn, its path in px) of each."""
    return [
        (artist.get_zorder(), path.transformed(artist.get_transform()))
        for artist in figure.findobj(chosen)
        for path in (artist.get_paths() if isinstance(artist, PolyCollection) else [artist.get_path()])
    ]


@pytest.mark.parametrize("name", CASES)
def test_nothing_crosses_digits(name: str) -> None:
    """Neither a hatch nor an arrow nor a note: digits are above it, on a ground or with an edge."""
    figure = drawn(name)
    hatches = paths_of(figure, lambda artist: isinstance(artist, PolyCollection) and artist.get_hatch())
    lines = paths_of(figure, lambda artist: isinstance(artist, FancyArrowPatch) or artist.get_gid() == "note")
    grounds = paths_of(figure, lambda artist: artist.get_gid() == "ground of digits")
    crossed = 0
    for text in digits_of(figure):
        box = Text.get_window_extent(text)
        inner = Bbox.from_extents(box.x0 + 1, box.y0 + box.height / 4, box.x1 - 1, box.y1 - box.height / 4)
        own = [order for order, path in grounds if path.contains_points(inner.corners()).all()]
        for order, path in hatches:
            if path.intersects_bbox(inner):
                crossed += 1
                assert own and order < own[0] < text.get_zorder(), text
        for order, path in lines:
            if path.intersects_bbox(inner, filled=False):
                crossed += 1
                assert (own or text.get_path_effects()) and order < text.get_zorder(), text
    assert crossed or name not in ("pinned", "notes")


@pytest.mark.parametrize("name", ["prefetch 8", "a deep worker_result_queue", "slots", "pinned"])
def test_every_batch_in_a_queue_has_its_number_where_there_is_room(name: str) -> None:
    deepest = 0
    for axes in drawn(name).axes:
        boxes = [each for each in axes.collections if str(each.get_gid()).endswith((" boxes", " lent"))]
        places = [path.get_extents(each.get_transform()) for each in boxes for path in each.get_paths()]
        depth = round(axes.get_yticks()[-1])
        if not places or depth > 8:
            continue
        digits = [Text.get_window_extent(text) for text in axes.texts if text.get_text().isdigit()]
        for place in places:
            wide = place.width / axes.figure.dpi
            within = [box for box in digits if place.x0 <= box.x0 and box.x1 <= place.x1]
            inside = [box for box in within if place.contains(box.x0 + box.width / 2, box.y0 + box.height / 2)]
            assert len(inside) == 1 if wide > 0.25 else len(inside) <= 1, (axes.get_gid(), place)
            deepest = max(deepest, depth if inside else 0)
            assert all(box.height * 0.75 < place.height for box in inside)  # a digit has no descender
    assert deepest >= 3 or name == "slots"


# ---- colours


def luminance(colour: str) -> float:
    """Of light, 0 to 1, as WCAG 2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))


def contrast(one: str, other: str) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_digits_and_words_stand_out_from_what_is_behind_them() -> None:
    for palette, dark in (ON_PAPER, DARK_ON_PAPER), (ON_SCREEN, DARK_ON_SCREEN):
        assert dark <= set(palette)
        for colour in palette:
            assert contrast(colour, "white" if colour in dark else "black") >= 4.5, colour
    assert {colours.ink_on(colour) for colour in DARK_ON_PAPER} == {"white"}
    assert {colours.ink_on(colour) for colour in {*ON_PAPER, colours.MESSAGE} - DARK_ON_PAPER} == {"black"}
    for ink in (colours.INK, colours.FAINT, colours.ALARM, colours.FOR_OTHERS):
        assert contrast(ink, "#f4ece4") >= 4.5  # the ground of a shutdown


def test_what_lies_side_by_side_differs_in_grey() -> None:
    """Bars of half a lane, on white; looks that are summed up; batches that follow each other, one apart or, as two
    workers take turns, two."""
    flat = sorted([1.0, *(luminance(colours.FLAT[look]) for look in colours.FLAT)])
    stacked = sorted(luminance(colours.SUMMED[look]) for look in (Look.FETCH, Look.COLLATE, Look.BUSY, Look.WAITING))
    for looks, least in (flat, 1.2), (stacked, 1.4):
        assert min((light + 0.05) / (dark + 0.05) for dark, light in itertools.pairwise(looks)) >= least
    batches = [colours.of_batch(batch) for batch in range(14)]
    for apart in (1, 2):
        assert min(contrast(a, b) for a, b in zip(batches, batches[apart:], strict=False)) > 1.7


# ---- what is in the picture is true


def test_a_message_without_a_batch_says_what_it_is_and_looks_like_no_batch(recorded: Recorded) -> None:
    figure = timeline(recorded("persistent"))
    outlines = [each for each in figure.findobj(PolyCollection) if str(each.get_gid()).endswith(" messages")]
    assert any(len(each.get_paths()) for each in outlines)
    assert colours.MESSAGE not in {*ON_PAPER, *colours.FLAT.values(), *colours.SUMMED.values()}
    shown = timeline(tracing.load(simulate(load, environment=TORCHS_WAY)))
    assert "message without a batch" in [text.get_text() for text in shown.legends[0].get_texts()]
    assert "STOP" in [text.get_text() for axes in shown.axes for text in axes.texts]


def test_the_legend_names_only_what_can_be_seen() -> None:
    """A span of no duration is in the trace, but not in the picture."""
    words = [text.get_text() for text in drawn("slots").legends[0].get_texts()]
    assert words == ["a batch: 7 colours in turn", "waiting", "in a slot, on its way", "way of batch 7"]
    assert "collate" in [text.get_text() for text in drawn("pinned").legends[0].get_texts()]
