"""The command line: python -m notebooks.exercises list | check | watch | hint | reset | together | grade."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from notebooks.exercises import answers, feedback, progress
from notebooks.exercises.exercise import Exercise, exercise, exercises
from notebooks.exercises.verdict import Verdict


def _python() -> str:
    """How to call this Python from here: "python", if its environment is active."""
    if Path(shutil.which("python") or "") == Path(sys.executable):
        return "python"
    return feedback.short_path(sys.executable)


COMMAND = f"{_python()} -m notebooks.exercises"
LOOK = 0.3  # seconds between two looks at the files
FILES = 200  # of `together`, an epoch
EXAMPLES = f"""examples:
  {COMMAND} list                   all exercises, and which are done
  {COMMAND} check 07               try answers/07_….py; without a number, the first that is not done
  {COMMAND} watch                  try each file when you save it; watch 07: only that one
  {COMMAND} hint 07                one more hint each time, three in all
  {COMMAND} reset 07               start again from the skeleton; your file is kept as .old
  {COMMAND} together               all your answers at once, beside torch's loader
  {COMMAND} grade class/* > grades.csv    for teachers: one row per learner"""
console = Console()


def make_parser() -> argparse.ArgumentParser:
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
        optional = "?" if name in ("check", "watch") else None
        command.add_argument("number", nargs=optional, metavar="NN", help="for example 07")
        command.set_defaults(run=run)
    together = commands.add_parser("together", help="run a real load with all your answers, beside torch's loader")
    together.add_argument("--files", type=int, default=FILES, metavar="N", help=f"files an epoch ({FILES})")
    together.set_defaults(run=run_together)
    grade = commands.add_parser("grade", help="grade a class: the table goes to stdout, a summary to stderr")
    grade.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a learner's folder of answers, or clone")
    grade.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="answers at a time (cores)")
    grade.add_argument("--summary", type=Path, metavar="FILE", help="write the summary there, too")
    grade.set_defaults(run=run_grade)
    return parser


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser()
    args = parser.parse_args(arguments)
    if "run" not in args:
        parser.print_help()
        return 2
    try:
        return int(args.run(args))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `... | head`: nobody reads the table any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 130


def run_list(args: argparse.Namespace) -> int:
    done = progress.done(answers.ANSWERS)
    table = Table(box=None, pad_edge=False, show_header=False)
    first = _next(done)
    for each in exercises().values():
        mark = "[green]done[/]" if each.id in done else "[bold]next[/]" if each is first else ""
        row = each.id, each.title, mark, f"notebook {int(each.notebook[:2])}"
        table.add_row(*row, style="dim" if each.id in done else "")
    console.print(table)
    _say_next(done)
    return 0


def _next(done: set[str]) -> Exercise | None:
    return next((each for each in exercises().values() if each.id not in done), None)


def _say_next(done: set[str]) -> None:
    console.print(ProgressBar(len(exercises()), len(done), width=40), Text(f" {len(done)} of {len(exercises())}"))
    first = _next(done)
    if first is None:
        console.print("\nAll exercises are done.")
        return
    file, about = feedback.short_path(answers.provide(first)), f"notebook {int(first.notebook[:2])}"
    console.print(f"\nNext: write {file} ({about}), then: {COMMAND} check {first.id}", soft_wrap=True)
    if not COMMAND.startswith("python "):
        console.print("[dim]After `source .venv/bin/activate` it is `python -m notebooks.exercises`.[/]")


def run_check(args: argparse.Namespace) -> int:
    which = exercise(args.number) if args.number else _next(progress.done(answers.ANSWERS))
    if which is None:
        console.print("All exercises are done.")
        return 0
    return 0 if _check(which).passed else 1


def _check(which: Exercise) -> Verdict:
    from notebooks.exercises import runner

    path = answers.provide(which)
    with console.status(f"trying {path.name}"):
        verdict = runner.grade(which, path)
    fell = progress.note(answers.ANSWERS, verdict)
    feedback.show(verdict, path, console)
    if fell:
        console.print("It passed earlier; now it is marked as not done.")
    if verdict.passed:
        _say_next(progress.done(answers.ANSWERS))
    else:
        console.print(f"[dim]A hint: {COMMAND} hint {which.id}[/]")
    return verdict


def run_watch(args: argparse.Namespace) -> int:
    """Until Ctrl-C. The given exercise, or the first that is not done, is tried at once."""
    first = exercise(args.number) if args.number else _next(progress.done(answers.ANSWERS))
    watched = [first] if args.number and first else list(exercises().values())
    where = answers.provide(watched[0]) if args.number else answers.ANSWERS
    what = "it" if args.number else "a file"
    console.print(f"Watching {feedback.short_path(where)}: save {what} to check it; Ctrl-C to stop.", soft_wrap=True)
    seen = _changed(watched)
    if first is not None:
        _check(first)
    while True:
        time.sleep(LOOK)
        now = _changed(watched)
        if now != (again := _changed(watched)):  # an editor may be in the middle of saving
            continue
        for each in watched:
            if again.get(each.id) != seen.get(each.id) and each.id in again:
                console.rule()
                _check(each)
        seen = again


def _changed(watched: list[Exercise]) -> dict[str, tuple[int, int]]:
    """When each file was written, and its size."""
    paths = {each.id: answers.ANSWERS / each.file for each in watched}
    time.sleep(LOOK / 3)
    return {name: (path.stat().st_mtime_ns, path.stat().st_size) for name, path in paths.items() if path.exists()}


def run_hint(args: argparse.Namespace) -> int:
    """One more each time; after the last, the first again."""
    which = exercise(args.number)
    path = answers.provide(which).parent / f".hints-{which.id}"
    given = int(path.read_text()) if path.exists() else 0
    number = given % len(which.hints)
    path.write_text(str(number + 1))
    console.print(f"[bold]{which.id} {which.title}[/], hint {number + 1} of {len(which.hints)}")
    console.print(which.hints[number], markup=False)
    return 0


def run_reset(args: argparse.Namespace) -> int:
    from notebooks.exercises.skeleton import generate

    which = exercise(args.number)
    path = answers.provide(which)
    if path.read_text(encoding="utf-8", errors="replace") == generate(which):
        console.print(f"{path.name} is the skeleton.")
        return 0
    old = path.with_suffix(".py.old")
    path.replace(old)
    answers.provide(which)
    progress.forget(answers.ANSWERS, which.id)
    console.print(f"{path.name} is the skeleton again; your version is in {old.name}.")
    return 0


def run_together(args: argparse.Namespace) -> int:
    """Answers that are marked as done are put to work; what both runs did is shown, and their timelines are kept."""
    from notebooks.exercises import together  # draws

    if args.files < 1:
        raise ValueError(f"--files {args.files}: at least one file an epoch")
    try:
        with console.status("") as status:
            shown = together.run_both(answers.ANSWERS, status.update, args.files)
    except together.Failed as failed:
        console.print(Text(str(failed)), soft_wrap=True)
        return 1
    console.print(shown.table)
    console.print(f"\n{shown.comparison}\n", highlight=False, soft_wrap=True)
    for each in shown.pictures:
        console.print(f"timeline  {feedback.short_path(each)}", soft_wrap=True)
    return 0 if shown.same else 1


def run_grade(args: argparse.Namespace) -> int:
    from notebooks.exercises import class_run

    folders = [each for each in args.folders if each.is_dir()]
    if not folders:
        raise ValueError("none of these is a folder: give one or more learners' folders of answers")
    if args.jobs < 1:
        raise ValueError(f"--jobs {args.jobs}: at least one answer at a time")

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    found = class_run.grade_class(folders, args.jobs, say, sys.stdout)
    text = "\n".join(class_run.summary(found))
    say(f"\n{text}")
    if args.summary is not None:
        args.summary.write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
