"""Exercise 15, name the bug: loaders with bugs that real loaders have had, run in the simulated world.

    python -m notebooks.exercises.bugs [FOLDER]      write their traces: a.trace, a.png, ...; the same every time

The bugs are edits of minidl, in texts/15.bugs. The runs are made here, not kept in the repository.

Legend
    letter   "a"                             of a trace
    name     "the round-robin is not reset"  of a bug
    reason   "there is one epoch only ..."   what in a trace contradicts a name; "" if nothing does
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import re
import shutil
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minidl.transport import VARIABLE
from minidl.world.simulated import Outcome, simulate
from notebooks.exercises import laws
from notebooks.exercises.evidence import AGAINST, Run
from notebooks.exercises.exercise import ANSWERS, TEXTS, exercise, find, sections
from notebooks.exercises.patching import replaced
from notebooks.exercises.programs import Samples, Stream, let_others_run, loader_of
from notebooks.exercises.verdict import Finding

if TYPE_CHECKING:
    from notebooks.exercises.answers import Answer

NUMBER = 15
FOLDER = "15_name_the_bug"  # beside the answer
COMMAND = "python -m notebooks.exercises.bugs"
STEPS = 400  # after which a run that would go on for ever is cut off
SHOWN = 0.0008  # seconds of a run that are drawn: the rest is waiting
NAMES = sorted(AGAINST)


@dataclass(frozen=True)
class Bug:
    """A loader with a bug, and what it loads."""

    name: str
    lesson: str  # what happens, and what prevents it
    program: Callable[[], Any]
    schedule: str  # under which the bug shows
    edits: tuple[tuple[str, str, str], ...]  # (a function of minidl, old lines, new lines)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """minidl with the bug."""
        with contextlib.ExitStack() as stack:
            for reference, old, new in self.edits:
                owner, _, function = find(reference)
                stack.enter_context(replaced(function, _edited(reference, function, old, new), owner))
            yield


def _edited(reference: str, function: Any, old: str, new: str) -> Any:
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{reference} has changed: {old!r} is no longer in it"
    names = dict(function.__globals__)
    exec(compile(source.replace(old, new), reference, "exec"), names)
    code = names[function.__name__].__code__
    return types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)


# ---- what they load


def load(dataset: Any, **options: Any) -> list[Any]:
    iterator, found = iter(loader_of(dataset, **options)), []
    try:
        for batch in iterator:
            let_others_run()
            found.append(batch)
    except RuntimeError:
        with contextlib.suppress(RuntimeError):
            next(iterator)  # an error that lost a task is raised again
        raise
    return found


def two_epochs() -> list[Any]:
    loader = loader_of(Samples(3), persistent_workers=True)
    return [list(loader), list(loader)]


def left() -> list[Any]:
    """An epoch that is left halfway, and the next one."""
    loader = loader_of(Samples(10), persistent_workers=True)
    first = next(iter(loader))
    let_others_run()
    return [first, *loader]


def dropped() -> Any:
    iterator = iter(loader_of(Samples(6)))
    batch = next(iterator)
    let_others_run()
    del iterator
    let_others_run()
    return batch


PROGRAMS: dict[str, Callable[[], Any]] = {
    "two_epochs": two_epochs,
    "three": functools.partial(load, Samples(3)),
    "ten": functools.partial(load, Samples(10)),
    "uneven": functools.partial(load, Stream(6, 0)),
    "pinned": functools.partial(load, Samples(3), pin_memory="host"),
    "left": left,
    "dropped": dropped,
}


def _read(text: str) -> Iterator[tuple[str, Bug]]:
    for heading, body in sections(text, "#").items():
        letter, _, name = heading.partition(": ")
        about, *parts = re.split(r"^@ ", f"{body}\n", flags=re.MULTILINE)
        head = dict(re.findall(r"^(\w+): (.+?)(?=\n\w+: |\n\n|\Z)", about, flags=re.MULTILINE | re.DOTALL))
        edits = []
        for part in parts:
            reference, *lines = part.rstrip().splitlines()
            old, new = ("\n".join(line[1:] for line in lines if line[0] == mark) for mark in "-+")
            edits.append((reference, old, new))
        lesson = " ".join(head["lesson"].split())
        yield letter, Bug(name, lesson, PROGRAMS[head["program"]], head["schedule"], tuple(edits))


BUGS = dict(_read((TEXTS / "15.bugs").read_text(encoding="utf-8")))


@functools.cache
def outcome(letter: str) -> Outcome:
    """The run that shows the bug."""
    bug = BUGS[letter]
    with bug.at_work():
        return simulate(
            bug.program,
            schedule=bug.schedule,
            draws=False,
            texts=laws.texts,
            most_steps=STEPS,
            environment={VARIABLE: "torch"},  # whose queues have feeders
        )


def write(letter: str, folder: Path) -> None:
    """Its trace, folder/a.trace, and its timeline, folder/a.png."""
    import tracing
    from tracing.recording import simulated_run

    run, path = outcome(letter), folder / f"{letter}.trace"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    with BUGS[letter].at_work():  # the run is repeated
        simulated_run.write(run, path)
    picture(tracing.load(path)).savefig(folder / f"{letter}.png", dpi=110)


def picture(trace: Any) -> Any:
    """Its timeline, without the long wait of a run that hangs."""
    import tracing

    return tracing.timeline(trace, end=min(SHOWN, trace.duration / 1e9), follow=False)


# ---- the exercise


def text(solved: bool) -> str:
    """The file below its docstring; when solved, with the lesson of each trace."""
    lines = ["ANSWERS = {"]
    for letter, bug in BUGS.items():
        if solved:
            lines += textwrap.wrap(bug.lesson, 100, initial_indent="    # ", subsequent_indent="    # ")
        lines.append(f'    "{letter}": "{bug.name if solved else ""}",')
    names = [f"#   {name}" for name in NAMES]
    return "\n".join([*lines, "}", "", "# The names. Some belong to none of the traces.", *names, ""])


def grade(answer: Answer, beat: Callable[[str], None]) -> Finding | None:
    answers = answer.names.get("ANSWERS")
    form = _form(answers)
    if form is not None:
        return form
    assert isinstance(answers, dict)
    wrong = [each for each in BUGS if answers[each] and answers[each] != BUGS[each].name]
    empty = [each for each in BUGS if not answers[each]]
    if wrong:
        beat(f"the run of trace {wrong[0]}")
        found = against(wrong[0], answers[wrong[0]], answer.path.parent / FOLDER)
        found.seen += [f"wrong, too: {', '.join(wrong[1:])}"] * bool(wrong[1:])
        found.seen += [f"still to name: {', '.join(empty)}"] * bool(empty)
        return found
    if empty:
        right = f"right so far: {', '.join(each for each in BUGS if answers[each]) or 'none'}"
        cause = f"Look at a trace with `python -m tracing step`; {COMMAND} writes them."
        return Finding("still to name", "ANSWERS", f"no name for {', '.join(empty)}", "a name for each", cause, [right])
    return None


def against(letter: str, name: str, folder: Path) -> Finding:
    """What in this trace contradicts a wrong name. The right name is not given away."""
    reason = AGAINST[name](Run(outcome(letter)))
    path = folder / f"{letter}.trace"
    where = f"python -m tracing step {path} -o {letter}.html" if path.exists() else f"write the traces: {COMMAND}"
    call, expected = f'ANSWERS["{letter}"] = "{name}"', "a name that nothing in the trace contradicts"
    return Finding(f"trace {letter}: not {name}", call, reason, expected, exercise(NUMBER).causes[name], [where])


def _form(answers: Any) -> Finding | None:
    """A finding, if the answers are not a dict of names."""
    if not isinstance(answers, dict) or sorted(answers, key=str) != list(BUGS):
        got = "no ANSWERS" if answers is None else repr(answers)[:200]
        cause = "Keep the skeleton's dict, and write a name beside each letter."
        return Finding("no dict of answers", "ANSWERS", got, f"a dict with the keys {', '.join(BUGS)}", cause)
    for letter, name in answers.items():
        if name and name not in NAMES:
            cause = "Copy one of the names at the end of the file exactly."
            return Finding("not one of the names", f'ANSWERS["{letter}"]', repr(name), "one of the names", cause)
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the traces of exercise 15, and their timelines.")
    parser.add_argument("folder", nargs="?", type=Path, default=ANSWERS / FOLDER, help="default: beside the answers")
    folder = parser.parse_args(arguments).folder
    for letter in BUGS:
        write(letter, folder)
        print(folder / f"{letter}.trace", folder / f"{letter}.png")
    print("\nThe names:\n  " + "\n  ".join(NAMES))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
