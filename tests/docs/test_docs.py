"""What the docs refer to exists: links, headings, files, names, events, commands. What is made from the code is up to
date (docs/events.md, docs/simulation.md and docs/symptoms.md have tests of their own)."""

from __future__ import annotations

import ast
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from matplotlib.path import Path as Path2D
from matplotlib.transforms import Bbox
from PIL import Image, ImageColor

import tracing
from minidl.events import Kind
from minidl.world.simulated import simulate
from notebooks.exercises.exercise import exercises
from tests.docs import diagrams, drawing, house, moving_picture, one_page, rooms
from tests.docs.pages import (
    PAGES,
    ROOT,
    blocks,
    broken_links,
    commands,
    slugs,
    spans,
    unknown,
    wrong_command,
)
from tests.minidl.test_structure import ours
from tracing.views.batch_colours import ON_PAPER

DRAWN = {"architecture": house, "tracing": rooms}  # the pictures of docs/architecture.md

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pages
def test_every_relative_link_leads_somewhere(page: Path):
    assert not list(broken_links(page, page.read_text(encoding="utf-8")))


@pages
def test_every_name_that_looks_like_ours_exists(page: Path):
    wrong = {span: unknown(span) for span in spans(page.read_text(encoding="utf-8"))}
    assert not {span: what for span, what in wrong.items() if what}


@pages
def test_every_command_can_be_called(page: Path):
    wrong = {line: wrong_command(line) for line in commands(page.read_text(encoding="utf-8"))}
    assert not {line: what for line, what in wrong.items() if what}


@pages
def test_every_block_of_python_parses(page: Path):
    for block in blocks(page.read_text(encoding="utf-8"), "python"):
        ast.parse(block)


def test_the_sequence_diagrams_show_what_is_in_the_traces():
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    assert diagrams.rewritten(text) == text, "run `make docs`"


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_of_architecture_is_what_is_drawn(name: str):
    assert (ROOT / f"docs/pictures/{name}.svg").read_text(encoding="utf-8") == DRAWN[name].draw(), "run `make docs`"


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_of_architecture_names_only_files_that_exist(name: str):
    named = re.findall(r">((?:minidl|tracing)/[^ <]+)<", DRAWN[name].draw())
    named += [f"tracing/{room}/{file}" for room, boxes in rooms.BOXES.items() for _, file in boxes]
    assert len(named) > 10 and not [each for each in named if not (ROOT / each).exists()]


def test_the_moving_picture_shows_the_run_that_it_is_made_from():
    path = ROOT / "docs/pictures/demo.gif"
    with Image.open(path) as picture:
        shown = getattr(picture, "n_frames", 1)
    run = tracing.load(simulate(moving_picture.program))
    assert shown == len(moving_picture.chosen(run)) > 50, "run `make pictures`"
    early = run.events["task"][run.events["kind"] == Kind.STORED]
    assert early.tolist() == [3, 5]  # as README.md says
    assert path.stat().st_size < 2_000_000


def test_the_moving_picture_has_the_colours_of_the_batches():
    with Image.open(ROOT / "docs/pictures/demo.gif") as picture:
        found = set[tuple[int, int, int]]()
        for number in range(picture.n_frames):
            picture.seek(number)
            found |= {colour for _, colour in picture.convert("RGB").getcolors(1 << 16)}
    for colour in ON_PAPER:
        wanted = ImageColor.getrgb(colour)
        assert min(max(abs(a - b) for a, b in zip(wanted, each, strict=True)) for each in found) <= 4, colour


@pytest.mark.parametrize("name", DRAWN)
def test_no_arrow_crosses_a_label(name: str):
    root = ET.fromstring(DRAWN[name].draw())
    words = {each.text: label_box(each) for each in root.findall("{*}text")}
    assert len(words) > 20
    for line in root.findall("{*}path"):
        points = [tuple(map(int, point.split())) for point in re.findall(r"\d+ \d+", line.get("d"))]
        crossed = [
            text
            for text, box in words.items()
            if Path2D(points).intersects_bbox(box.padded(int(line.get("stroke-width", 1)) / 2), filled=False)
        ]
        assert not crossed, points


def label_box(text: ET.Element) -> Bbox:
    """Where it is, as wide as in the widest of the fonts."""
    wide = len(text.text) * (drawing.FILE if text.get("class") == "file" else drawing.NAME)
    x, y = int(text.get("x")), int(text.get("y"))
    left = x if text.get("class") in ("title", "beside") else x - wide / 2
    return Bbox.from_extents(left, y - 9, left + wide, y)


def test_a_box_that_is_too_narrow_for_its_words_is_not_drawn():
    with pytest.raises(ValueError, match="wider than its box"):
        drawing.box(0, 0, 100, 50, "feeder threads", "tracing/recording/event_writer.py")


def test_architecture_begins_with_the_loader_of_one_page():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert one_page.rewritten(text) == text, "run `make docs`"
    assert blocks(text, "python")[0].count("\n") <= 80


def test_the_page_names_the_modules_that_use_more_of_minidl_than_its_events():
    graph = ours()
    users = {name for name in graph if name.startswith("tracing.") and loaders(graph[name])}
    (paragraph,) = re.findall(
        r"imports more of minidl: (.*?)\.\n", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.DOTALL
    )
    named = {span.removesuffix(".py").removesuffix("/").replace("/", ".") for span in spans(paragraph)}
    assert not {user for user in users if not user.startswith(tuple(named))}
    assert not {each for each in named if not any(user.startswith(each) for user in users)}
    allowed = {"minidl.data", "minidl.transport"}
    assert not any(loaders(graph[name]) - allowed for name in graph if name.startswith("minidl.data."))


def loaders(imported: set[str]) -> set[str]:
    """The modules of minidl among those imported, except its events, its laws and its data."""
    kept = re.compile(r"minidl\.(events|laws|data\..*)$")
    return {name for name in imported if name.split(".")[0] == "minidl" and not kept.match(name)}


# ---- what is stated in several places is the same in all


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        (r"Python (3\.\d+ to 3\.\d+)", ["README.md", "CONTRIBUTING.md"]),
    ],
)
def test_what_is_stated_twice_is_stated_alike(pattern: str, places: list[str]):
    found = [set(re.findall(pattern, (ROOT / place).read_text(encoding="utf-8"))) for place in places]
    assert len(set.union(*found)) == 1 and all(found), found


def test_the_oldest_python_is_the_one_that_is_required():
    (oldest,) = re.findall(r'requires-python = ">=(3\.\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"Python {oldest} to" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"({oldest.replace('.', ', ')})" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_contributing_names_the_limits_that_a_test_holds():
    limits = re.findall(r"at most (\d+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    held = (ROOT / "tests/minidl/test_structure.py").read_text(encoding="utf-8")
    assert len(limits) == 2 and all(f"<= {limit}" in held for limit in limits)


def test_the_readme_counts_the_notebooks_and_the_exercises():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"[{len(list((ROOT / 'notebooks').glob('*.ipynb')))} notebooks]" in readme
    assert f"[{len(exercises())} exercises]" in readme


@pytest.mark.parametrize("picture", diagrams.PICTURES, ids=lambda picture: picture.name)
def test_a_diagram_ends_as_its_section_describes(picture: diagrams.Picture):
    """A kill is shown. Every other process exits with 0."""
    drawn = diagrams.drawn(picture)
    assert ("SIGKILL" in drawn) == (picture.kill is not None)
    if picture.begin is not None and "exit code" in drawn:
        assert drawn.count("exit code 0") == (2 if picture.kill is None else 1)


# ---- the checks find what is wrong


def test_broken_links_are_found(tmp_path: Path):
    page = tmp_path / "page.md"
    (tmp_path / "code.py").write_text("def there(): ...\n")
    good = "# A `b`: c\n\n[x](#a-b-c) [y](https://example.org/no) [`there`](code.py)\n```\n[no](no.md)\n```\n"
    page.write_text(good)
    assert not list(broken_links(page, good))
    assert slugs(page) == {"a-b-c"}
    bad = "[x](no.md) [x](#no) [`gone`](code.py) ![x](no.png)"
    assert len(list(broken_links(page, bad))) == 4


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("minidl/parallel.py", "minidl/paralel.py"),
        ("tracing/views/", "tracing/vues/"),
        ("_utils/worker.py", "_utils/wurker.py"),
        ("minidl.world.simulated", "minidl.world.simulating"),
        ("tracing.timeline(trace)", "tracing.tymeline(trace)"),
        ("_task_info", "_task_infos"),
        ("trace.state(k)", "trace.stat(k)"),
        ("KEYS_DRAWN", "KEYS_DREWN"),
        ("DistributedSampler.set_epoch", "DistributedSampler.sett_epoch"),
    ],
)
def test_names_that_do_not_exist_are_found(good: str, bad: str):
    assert not unknown(good)
    assert unknown(bad)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("make docs", "make dox"),
        ("python -m tracing report DIR", "python -m tracing repport DIR"),
        ("python -m tracing timeline DIR --batches 10:30", "python -m tracing timeline DIR --batch 10:30"),
        ("python -m tracing run --memory train.py --lr 0.1", "python -m tracing run --lr 0.1 train.py"),
        ("python -m notebooks.exercises check 07", "python -m notebooks.exercises chek 07"),
        ("X=1 .venv/bin/python -m notebooks.exercises hint 07", "X=1 .venv/bin/python -m notebooks.exercises hint 97"),
        ("python -m tests.docs.diagrams", "python -m tests.docs.diagram"),
    ],
)
def test_commands_that_cannot_be_called_are_found(good: str, bad: str):
    assert list(commands(f"`{good}`")) == [good]
    assert not wrong_command(good)
    assert wrong_command(bad)
