"""The command line: python -m notebooks.exercises list | check | watch | hint | reset | together | grade."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from notebooks.exercises import class_run, feedback, grade_table, progress
from notebooks.exercises.answers import ANSWERS, provide, provide_all
from notebooks.exercises.exercise import Exercise, exercise, exercises
from notebooks.exercises.grading import grade
from notebooks.exercises.together_load import FILES
from notebooks.exercises.verdict import Verdict


def _python() -> str:
    """How to call this Python from here: "python", if its environment is active."""
    if Path(shutil.which("python") or "") == Path(sys.executable):
        return "python"
    return feedback.short_path(Path(sys.executable))


COMMAND = f"{_python()} -m notebooks.exercises"
LOOK = 0.3  # seconds between two looks at the files
EXAMPLES = f"""examples:
  {COMMAND} list                   all exercises, and which are done
  {COMMAND} check 07               try answers/07_….py; without a number, the first that is not done
  {COMMAND} watch                  try each file when you save it; watch 07: only that one
  {COMMAND} hint 07                one more hint each time, three in all
  {COMMAND} reset 07               start again from the skeleton; your file is kept as .old
  {COMMAND} together               all your answers at once, beside torch's loader
  {COMMAND} grade class/* > grades.csv    for teachers: one row per learner"""
GRADE_EXAMPLES = f"""example:
  {COMMAND} grade class/* --jobs 4 --summary mistakes.txt > grades.csv"""
console = Console()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    commands.add_parser("list", help="all exercises, and which are done").set_defaults(run=run_list)
    for name, run, text in (
        ("check", run_check, "grade an answer"),
        ("watch", run_watch, "grade each file that is saved, or only one"),
        ("hint", run_hint, "one more hint"),
        ("reset", run_reset, "start again from the skeleton"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "number", nargs="?" if name in ("check", "watch") else None, metavar="NN", help="for example 07"
        )
        command.set_defaults(run=run)
    together = commands.add_parser("together", help="run a real load with all your answers, beside torch's loader")
    together.add_argument("--check", action="store_true", help="first grade every answer that is written")
    together.add_argument("--files", type=int, default=FILES, metavar="N", help=f"files an epoch ({FILES})")
    together.set_defaults(run=run_together)
    _add_grade(commands)
    args = parser.parse_args(arguments)
    if "run" not in args:
        parser.print_help()
        return 2
    try:
        return int(args.run(args))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 130


def _add_grade(commands: Any) -> None:
    command = commands.add_parser(
        "grade",
        help="grade a class: folders of answers, as CSV and with a summary",
        description="Grade a class. The table goes to stdout, progress and a summary to stderr: which mistakes were "
        "made how often, and which answers are the same but for names. Nothing is written into the folders.",
        epilog=GRADE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a learner's folder of answers, or clone")
    command.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="answers at a time (cores)")
    command.add_argument("--summary", type=Path, metavar="FILE", help="write the summary there, too")
    command.set_defaults(run=run_grade)


def run_list(args: argparse.Namespace) -> int:
    provide_all()
    done = progress.done(ANSWERS)
    table = Table(box=None, pad_edge=False, show_header=False)
    first = _next(done)
    for each in exercises().values():
        mark = "[green]done[/]" if each.id in done else "[bold]next[/]" if each is first else ""
        table.add_row(
            each.id, each.title, mark, f"notebook {int(each.notebook[:2])}", style="dim" if each.id in done else ""
        )
    console.print(table)
    _bar(done)
    _say_next(first)
    return 0


def _say_next(first: Exercise | None) -> None:
    if first is None:
        console.print("\nAll exercises are done.")
        return
    file, about = feedback.short_path(ANSWERS / first.file), f"notebook {int(first.notebook[:2])}"
    console.print(f"\nNext: write {file} ({about}), then: {COMMAND} check {first.id}", soft_wrap=True)
    if not COMMAND.startswith("python "):
        console.print("[dim]After `source .venv/bin/activate` it is `python -m notebooks.exercises`.[/]")


def _next(done: set[str]) -> Exercise | None:
    return next((each for each in exercises().values() if each.id not in done), None)


def _bar(done: set[str]) -> None:
    console.print(ProgressBar(len(exercises()), len(done), width=40), Text(f" {len(done)} of {len(exercises())}"))


def run_check(args: argparse.Namespace) -> int:
    which = exercise(args.number) if args.number else _next(progress.done(ANSWERS))
    if which is None:
        console.print("All exercises are done.")
        return 0
    return 0 if _check(which).passed else 1


def _check(which: Exercise) -> Verdict:
    path = provide(which)
    with console.status(f"trying {path.name}"):
        verdict = grade(which, path)
    fell = progress.note(ANSWERS, verdict)
    feedback.show(verdict, path, console)
    if fell:
        console.print("It passed earlier; now it is marked as not done.")
    _bar(progress.done(ANSWERS))
    if verdict.passed:
        _say_next(_next(progress.done(ANSWERS)))
    else:
        console.print(f"[dim]A hint: {COMMAND} hint {which.id}[/]")
    return verdict


def run_watch(args: argparse.Namespace) -> int:
    """Until Ctrl-C. The given exercise, or the first that is not done, is tried at once."""
    provide_all()
    seen = _changed({})
    watched = [exercise(args.number)] if args.number else list(exercises().values())
    where = feedback.short_path(ANSWERS / (watched[0].file if args.number else ""))
    what = "it" if args.number else "a file"
    console.print(f"Watching {where}: save {what} to check it; Ctrl-C to stop.", soft_wrap=True)
    first = watched[0] if args.number else _next(progress.done(ANSWERS))
    if first is not None:
        _check(first)
    while True:
        time.sleep(LOOK)
        now = _changed(seen)
        for each in watched:
            if now.get(each.file) != seen.get(each.file) and each.file in now:
                console.rule()
                _check(each)
        seen = now


def _changed(before: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """When each file was written, and its size. After a change it looks again until two looks agree: an editor may be
    in the middle of saving."""
    while True:
        now = {}
        for each in exercises().values():
            try:
                about = (ANSWERS / each.file).stat()
            except OSError:  # an editor may remove the file for a moment while it saves
                continue
            now[each.file] = about.st_mtime_ns, about.st_size
        if now == before:
            return now
        before = now
        time.sleep(LOOK / 3)


def run_hint(args: argparse.Namespace) -> int:
    """One more each time; after the last, the first again."""
    which = exercise(args.number)
    provide(which)
    path = ANSWERS / f".hints-{which.id}"
    given = int(path.read_text()) if path.exists() else 0
    number = given % len(which.hints)
    path.write_text(str(number + 1))
    console.print(f"[bold]{which.id} {which.title}[/], hint {number + 1} of {len(which.hints)}")
    console.print(which.hints[number], markup=False)
    return 0


def run_reset(args: argparse.Namespace) -> int:
    which = exercise(args.number)
    path = provide(which)
    if path.read_bytes() == which.skeleton.read_bytes():
        console.print(f"{path.name} is the skeleton.")
        return 0
    old = path.with_suffix(".py.old")
    path.replace(old)
    shutil.copyfile(which.skeleton, path)
    progress.forget(ANSWERS, which.id)
    console.print(f"{path.name} is the skeleton again; your version is in {old.name}.")
    return 0


def run_together(args: argparse.Namespace) -> int:
    """Answers that are marked as done are put to work; a table and a picture are shown, and kept beside them."""
    from notebooks.exercises import together, together_shown  # draws

    if args.files < 1:
        raise ValueError(f"--files {args.files}: at least one file an epoch")
    provide_all()
    if args.check:
        for each in together.rewritten():
            if (ANSWERS / each.file).read_bytes() != each.skeleton.read_bytes():
                _check(each)
    try:
        with console.status("") as status:
            ours, torchs = together.run_both(ANSWERS, status.update, args.files)
    except together.Failed as failed:
        console.print(Text(str(failed)), soft_wrap=True)
        console.print(f"[dim]To grade each answer first: {COMMAND} together --check[/]", soft_wrap=True)
        return 1
    folder = ANSWERS / "together"
    table = together_shown.table(ours, torchs, ANSWERS)
    console.print(table)
    with open(folder / "table.txt", "w", encoding="utf-8") as file:
        Console(file=file, width=140).print(table)
    together_shown.save_picture(ours, torchs, ANSWERS, folder / "timelines.png")
    console.print(f"\ntimelines  {feedback.short_path(folder / 'timelines.png')}", soft_wrap=True)
    console.print(f"table      {feedback.short_path(folder / 'table.txt')}", soft_wrap=True)
    return 0 if together_shown.same(ours, torchs).startswith("yes") else 1


def run_grade(args: argparse.Namespace) -> int:
    folders = [each for each in args.folders if each.is_dir()]
    if not folders:
        raise ValueError("none of these is a folder: give one or more learners' folders of answers")
    if args.jobs < 1:
        raise ValueError(f"--jobs {args.jobs}: at least one answer at a time")
    for each in set(args.folders) - set(folders):
        _to_stderr(f"{each} is not a folder: left out")
    learners = class_run.read_class(folders)
    for folder, learner in zip(folders, learners, strict=True):
        if not learner.files:
            _to_stderr(f"{folder}: no exercises in it")
    begin = time.perf_counter()
    try:
        with contextlib.closing(class_run.grade_class(learners, args.jobs, _to_stderr)) as graded:
            grade_table.write_grades(graded, sys.stdout)
    except BrokenPipeError:  # `... | head`: nobody reads the table any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    text = "\n".join([*grade_table.summary(learners), f"\n{time.perf_counter() - begin:.0f} s, --jobs {args.jobs}"])
    _to_stderr(f"\n{text}")
    if args.summary is not None:
        args.summary.write_text(f"{text}\n", encoding="utf-8")
    return 0


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
