"""What the notebooks show: minidl's source, and runs of the simulated world as pictures, step-throughs and reports.

show.source(ParallelIterator._try_put_index)    the function as it is in the package
run = show.run(program)                         simulated: the same run, to the byte, every time
show.timeline(run), show.step(run), show.report(run)
show.journey(run, 5)                            all events of batch 5, in words
"""

from __future__ import annotations

import inspect
import io
import textwrap
from collections.abc import Callable
from typing import Any

from IPython.display import Image, Markdown, display
from matplotlib.figure import Figure

import tracing
from minidl.transport import VARIABLE
from minidl.world.simulated import Outcome, simulate
from tracing.trace.event_words import KINDS, sentence, thread_name
from tracing.views.step_through.source_code import EmittingLines

DPI = 110


def source(*things: Any) -> None:
    """The source of functions, methods and classes of minidl, each headed by its file's name."""
    for thing in things:
        module = inspect.getmodule(thing)
        assert module is not None
        text = textwrap.dedent(inspect.getsource(thing)).rstrip()
        code = f"```python\n# {module.__name__.replace('.', '/')}.py\n\n{text}\n```"
        # Markdown, not HTML: it is highlighted wherever a notebook is shown, and short in a diff. The frame is for
        # nbconvert, whose style sheet sets no font for code in an output.
        display(Markdown(f'<div style="font-family: monospace">\n\n{code}\n\n</div>'))


def run(program: Callable[[], Any], transport: str = "torch", **options: Any) -> Outcome:
    """Run a program in the simulated world; `options` are those of `simulate`. What it raises is raised here. Its
    loaders move batches as torch does, with a feeder thread for each queue; chapter 14 is about the other way."""
    outcome = simulate(program, environment={VARIABLE: transport}, **options)
    if outcome.error is not None:
        raise outcome.error
    return outcome


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
    code = EmittingLines(trace.sources)
    rows = ["| ms | who | does what | emitted in |", "|---:|---|---|---|"]
    for event in trace.events[(trace.events["task"] == task_id) & (trace.events["epoch"] == 0)]:
        kind, what = KINDS[int(event["kind"])], sentence(event).text("**{}**")
        function = code.functions[code.sites[code.site(kind, event["queue"])][0]]
        ms, who = (int(event["time"]) - trace.start) / 1e6, thread_name(trace.actors[event["actor"]])
        who = who.replace(" ", "\N{NO-BREAK SPACE}")
        rows.append(f"| {ms:.2f} | {who} | {what} | `{function['name']}`, {function['file']} |")
    return Markdown("\n".join(rows))


def report(run: Outcome | tracing.Trace, until: str = "Look") -> None:
    """The report, up to the line that begins with this word."""
    text = str(tracing.report(_trace(run)))
    print(text.partition(f"\n{until}")[0])


def _trace(run: Outcome | tracing.Trace) -> tracing.Trace:
    return tracing.load(run) if isinstance(run, Outcome) else run
