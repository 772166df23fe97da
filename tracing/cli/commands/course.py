"""`course`: the notebooks and the exercises, for those who have the package installed but no repository."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from tracing.cli.arguments import UsageError, add_command, add_path

PACKAGE = Path(__file__).parents[2]
PLACES = PACKAGE / "course", PACKAGE.parent / "notebooks"  # in an installed package; in a repository
NEXT = """\
The course is in {folder}. To go on:
  cd {folder}
  jupyter lab notebooks/00-a-dataloader-on-one-page.ipynb    # pip install '.[notebooks]' in a clone
  python -m notebooks.exercises list"""


def add_to(commands: Any) -> None:
    parser = add_command(commands, "course", course, "copy the notebooks and exercises into a new folder", "my-course")
    add_path(parser, "folder", "the folder to create")


def course(args: argparse.Namespace) -> None:
    target = args.folder / "notebooks"
    if target.exists():
        raise UsageError(f"{target} exists, and may hold your answers: choose a new folder")
    source = next(place for place in PLACES if place.is_dir())
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "answers"))
    print(NEXT.format(folder=args.folder))
