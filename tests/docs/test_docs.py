"""What the docs refer to is there: links, headings, files, names, events, commands. What is made from the code is what
the code makes (docs/events.md, docs/simulation.md and docs/symptoms.md have tests of their own)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.docs import diagrams, house
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

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pages
def test_every_relative_link_leads_somewhere(page: Path):
    assert not list(broken_links(page, page.read_text(encoding="utf-8")))


@pages
def test_every_name_that_looks_like_ours_is_there(page: Path):
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


def test_the_sequence_diagrams_are_what_the_traces_show():
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    assert diagrams.rewritten(text) == text, "run `make docs`"


def test_the_picture_of_the_house_is_what_is_drawn():
    assert (ROOT / "docs/pictures/architecture.svg").read_text(encoding="utf-8") == house.draw(), "run `make docs`"


def test_every_module_in_the_picture_of_the_house_is_there():
    there = [word for word in house.draw().replace("<", ">").split(">") if word.startswith(("minidl/", "tracing/"))]
    assert len(there) > 10 and all((ROOT / each.partition(":")[0]).exists() for each in there)


@pytest.mark.parametrize("picture", diagrams.PICTURES, ids=lambda picture: picture.name)
def test_a_diagram_ends_as_its_section_says(picture: diagrams.Picture):
    """Whoever is killed is seen to be killed. Nobody else ends with another exit code than 0."""
    drawn = diagrams.drawn(picture)
    assert ("SIGKILL" in drawn) == (picture.kill is not None)
    if picture.begin is not None and "exit code" in drawn:
        assert drawn.count("exit code 0") == (2 if picture.kill is None else 1)


# ---- the checks see what is wrong


def test_broken_links_are_seen(tmp_path: Path):
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
def test_names_that_are_not_there_are_seen(good: str, bad: str):
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
def test_commands_that_cannot_be_called_are_seen(good: str, bad: str):
    assert list(commands(f"`{good}`")) == [good]
    assert not wrong_command(good)
    assert wrong_command(bad)
