"""What the notebooks show: minidl's source, and runs of the simulated world as pictures, step-throughs and reports.

show.source(ParallelIterator._try_put_index)    the function as it is in the package; folded if an exercise asks for it
run = show.run(program)                         simulated: the same run, to the byte, every time
show.timeline(run), show.step(run), show.report(run)
show.journey(run, 5)                            all events of batch 5, in words
trace = show.record(program)                    real processes, for a limited time; they are gone afterwards
"""

from __future__ import annotations

import ast
import inspect
import io
import multiprocessing
import os
import re
import signal
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.display import Image, Markdown, display
from matplotlib.figure import Figure

import tracing
from minidl.transport import VARIABLE
from minidl.world.simulated import Outcome, simulate
from notebooks.predict import BUILDS, REFUSED, SUMMARY
from tracing.trace.event_words import KINDS, sentence, thread_name
from tracing.views.step_through.source_code import EmittingLines

DPI = 110


def source(*things: Any, events: bool = True) -> None:
    """The source of functions, methods, classes and modules, each headed by its file's name; if asked, without the
    lines that emit events. What an exercise asks its reader to write is folded."""
    for thing in things:
        display(Markdown(source_markdown(thing, events)))


def source_markdown(thing: Any, events: bool = True) -> str:
    """Markdown, not HTML: it is highlighted wherever a notebook is shown, and short in a diff."""
    module = inspect.getmodule(thing)
    assert module is not None
    text = textwrap.dedent(inspect.getsource(thing)).rstrip()
    text = text if events else without_events(text)
    code = f"```python\n# {module.__name__.replace('.', '/')}.py\n\n{text}\n```"
    if numbers := exercises_that_ask_for(thing):
        asks = f"exercise {numbers[0]} asks" if len(numbers) == 1 else f"exercises {' and '.join(numbers)} ask"
        summary = f"<code>{thing.__name__}</code>: {asks} you to write it. Open when you have."
        code = f"<details>{SUMMARY}{summary}</summary>\n\n{code}\n\n</details>"  # a fence needs the empty lines
    # The frame is for nbconvert, whose style sheet sets no font for code in an output.
    return f'<div style="font-family: monospace">\n\n{code}\n\n</div>'


def exercises_that_ask_for(thing: Any) -> list[str]:
    """The numbers of the exercises whose reference it is, or holds."""
    from notebooks.exercises.exercise import exercises  # not above: a picture needs no graders

    place = f"{thing.__name__}:" if inspect.ismodule(thing) else f"{thing.__module__}:{thing.__qualname__}."
    found = [each for each in exercises().values() if any(f"{one}.".startswith(place) for one in each.references)]
    return [str(each.number) for each in found]


def without_events(text: str) -> str:
    """A source without the statements that only report to the tracer: those that name `emit` or `events`, and the
    conditions upon nothing else."""
    lines: list[str | None] = list(text.splitlines())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and _only_reports(node):
            lines[node.lineno - 1 : node.end_lineno] = [None] * ((node.end_lineno or 0) - node.lineno + 1)
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(line for line in lines if line is not None))


def _only_reports(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return not node.orelse and all(map(_only_reports, node.body))
    if isinstance(node, ast.ImportFrom):
        return str(node.module).partition(".")[0] == "minidl"
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return isinstance(node, (ast.Expr, ast.Assign)) and bool(names & {"emit", "events"})


def run(program: Callable[[], Any], transport: str = "torch", **options: Any) -> Outcome:
    """Run a program in the simulated world; `options` are those of `simulate`. What it raises is raised here. Its
    loaders move batches as torch does, with a feeder thread for each queue; notebook 14 is about the other way."""
    outcome = simulate(program, environment={VARIABLE: transport}, **options)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def record(program: Callable[[], Any], limit: float = 20.0) -> tracing.Trace:
    """The trace of a program, run with real processes. It is stopped after so many seconds, and whatever workers it
    leaves behind are ended; it says so if there was need."""
    previous = signal.signal(signal.SIGALRM, _raise_timeout)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.trace")
        try:
            with tracing.record(path):
                signal.setitimer(signal.ITIMER_REAL, limit)
                program()
        except TimeoutError:
            print(f"stopped after {limit:g} s: it would wait for ever")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
            left = end_children()
        if left:
            print(f"workers left behind: {left}")
        return tracing.load(path)


def _raise_timeout(*_: Any) -> None:
    raise TimeoutError


def end_children() -> int:
    """Ends the processes that this one has started with multiprocessing. Returns how many there were."""
    children = multiprocessing.active_children()
    for child in children:
        child.kill()
        child.join()
    return len(children)


def must_be_clear(clear: bool) -> None:
    """The build refuses a picture that contradicts its text: the machine was busy with other things."""
    assert clear or BUILDS not in os.environ, REFUSED


def timeline(run: Outcome | tracing.Trace, **options: Any) -> Image:
    """The timeline of a run, or of a trace; `options` are those of `tracing.timeline`."""
    return picture(tracing.timeline(_trace(run), **options))


def picture(figure: Figure) -> Image:
    """A figure as it is: its size does not depend on what it shows, as an inline picture's does."""
    file = io.BytesIO()
    figure.savefig(file, dpi=DPI, metadata={"Software": None})  # so that the same picture is the same file
    return Image(file.getvalue(), format="png")


def step(run: Outcome | tracing.Trace, title: str = "step by step", height: int = 880, **part: Any) -> Any:
    """The step-through; `part` as in `tracing.step`."""
    return tracing.step(_trace(run), title=title, height=height, **part)


def journey(run: Outcome | tracing.Trace, task_id: int) -> Markdown:
    """Every event of one batch (of the first epoch): when, who, what, and which function of minidl emits it."""
    trace = _trace(run)
    code = EmittingLines()
    rows = ["| ms | who | does what | emitted in |", "|---:|---|---|---|"]
    for event in trace.events[(trace.events["task"] == task_id) & (trace.events["epoch"] == 0)]:
        kind, what = KINDS[int(event["kind"])], sentence(event).text("**{}**")
        function = code.functions[code.sites[code.site(kind, event["queue"])][0]]
        ms, who = (int(event["time"]) - trace.start) / 1e6, thread_name(trace.actors[event["actor"]])
        who = who.replace(" ", "\N{NO-BREAK SPACE}")
        rows.append(f"| {ms:.2f} | {who} | {what} | `{function['name']}`, {function['file']} |")
    return Markdown("\n".join(rows))


def report(run: Outcome | tracing.Trace, since: str = "", until: str = "Look") -> None:
    """The report, from the line that begins with `since`, up to the one that begins with `until`."""
    text = f"\n{tracing.report(_trace(run))}"
    print(text[text.index(f"\n{since}") + 1 :].partition(f"\n{until}")[0])


def _trace(run: Outcome | tracing.Trace) -> tracing.Trace:
    return tracing.load(run) if isinstance(run, Outcome) else run
