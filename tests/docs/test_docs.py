"""What the docs refer to exists: links, headings, files, names, events, commands. What is made from the code is up to
date (docs/simulation.md and docs/symptoms.md have tests of their own)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from PIL import Image

import tracing
from docs.make import diagrams, moving_picture
from docs.make.__main__ import MADE
from minidl.events import Kind
from minidl.world.simulated import simulate
from notebooks.exercises.exercise import exercises
from tests.docs.pages import PAGES, ROOT, blocks, broken_links, commands, spans, unknown, wrong_command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_refers_to_exists(page: Path):
    """Each relative link, each name that looks like ours, each command; and each block of Python parses."""
    text = page.read_text(encoding="utf-8")
    assert not list(broken_links(page, text))
    wrong = {span: unknown(span) for span in spans(text)} | {line: wrong_command(line) for line in commands(text)}
    assert not {each: what for each, what in wrong.items() if what}
    for block in blocks(text, "python"):
        ast.parse(block)


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_from_the_code_is_up_to_date(name: str):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert MADE[name](text) == text, "run `make docs`"


def test_the_moving_picture_shows_the_run_that_it_is_made_from():
    path = ROOT / "docs/pictures/demo.gif"
    with Image.open(path) as picture:
        shown = getattr(picture, "n_frames", 1)
    run = tracing.load(simulate(moving_picture.program))
    assert shown == len(moving_picture.chosen(run)) > 50, "run `make pictures`"
    early = run.events["task"][run.events["kind"] == Kind.STORED]
    assert early.tolist() == [3, 5]  # as README.md says
    assert path.stat().st_size < 2_000_000


# ---- the two drawings


@pytest.mark.parametrize("name", ["architecture", "tracing"])
def test_a_picture_names_only_files_that_exist(name: str):
    named = re.findall(r">([\w/]+(?:/|\.py))</text>", (ROOT / f"docs/pictures/{name}.svg").read_text(encoding="utf-8"))
    missing = [each for each in named if not ((ROOT / each).exists() or [*ROOT.glob(f"tracing/*/{each}")])]
    assert len(named) > 10 and not missing


STATED = "README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "tests/minidl/test_structure.py"


def test_what_is_stated_in_several_places_is_the_same_in_all():
    readme, contributing, make, project, held = ((ROOT / name).read_text(encoding="utf-8") for name in STATED)
    (oldest,) = re.findall(r'requires-python = ">=(3\.\d+)"', project)
    assert f"Python {oldest} to 3." in readme and f"({oldest.replace('.', ', ')})" in make
    limits = re.findall(r"at most (\d+)", contributing)
    assert len(limits) == 2 and all(f"<= {limit}" in held for limit in limits)
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


def test_broken_links_are_found():
    """(That good ones are not, all pages show.)"""
    bad = "[x](no.md) [x](#no) [`gone`](minidl/queues.py) ![x](no.png)"
    assert len(list(broken_links(ROOT / "README.md", bad))) == 4


WRONG = [  # what is right, and what is not
    ("tracing/views/", "tracing/vues/"), ("_utils/worker.py", "_utils/wurker.py"), ("KEYS_DRAWN", "KEYS_DREWN"),
    ("tracing.timeline(trace)", "tracing.tymeline(trace)"), ("_task_info", "_task_infos"), ("make docs", "make dox"),
    ("DistributedSampler.set_epoch", "DistributedSampler.sett_epoch"),
    ("python -m tracing report DIR", "python -m tracing repport DIR"),
    ("python -m tracing timeline DIR --batches 10:30", "python -m tracing timeline DIR --bunches 10:30"),
    ("python -m tracing run --live train.py --lr 0.1", "python -m tracing run --lr 0.1 train.py"),
    ("X=1 .venv/bin/python -m notebooks.exercises hint 07", "X=1 .venv/bin/python -m notebooks.exercises hint 97"),
    ("python -m docs.make.mutants", "python -m docs.make.mutant"),
]  # fmt: skip


@pytest.mark.parametrize(("good", "bad"), WRONG)
def test_names_and_commands_that_do_not_exist_are_found(good: str, bad: str):
    is_command = list(commands(f"`{good}`")) == [good]
    what_is_wrong = wrong_command if is_command else unknown
    assert is_command == (" " in good) and not what_is_wrong(good) and what_is_wrong(bad)
