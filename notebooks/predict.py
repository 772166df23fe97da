"""Predictions that count: the reader answers first, and what the run shows is folded until then.

guess = predict("Which batches wait in the reorder buffer?", "1", "1 and 3", "none", mine="")
...
guess.reveal(show.timeline(run), came="1 and 3")      beside it: what was predicted

In JupyterLab, VS Code and the classic notebook the choices are buttons (ipywidgets), and what is revealed unfolds at
the click. Where there are no widgets, the reader writes the answer into the cell, as `mine`; and whoever only reads a
notebook opens the fold. The folds are HTML in the outputs, since VS Code does not heed a cell's metadata for folding.
"""

from __future__ import annotations

import base64
import itertools
import os
from html import escape
from typing import Any

from IPython.display import HTML, display

PLAIN = "MINIDL_PLAIN"  # set while the notebooks are built: a committed notebook has no widgets
BUILDS = "MINIDL_BUILDS_NOTEBOOKS"  # in the environment while outputs are made that are to be committed
REFUSED = "not written: this picture is clear only on a quiet machine"
BOX = "border-left: 3px solid #2b6cdf; padding: 2px 12px; margin: 4px 0"
# The style is for the classic notebook, whose style sheet takes the triangle away.
SUMMARY = '<summary style="display: list-item; cursor: pointer">'
CLOSED = f"<details>{SUMMARY}Predict first (above); then open this.</summary>"
_numbers = itertools.count(1)


class Prediction:
    """A question, its choices, what the reader has answered, and where the answer is shown."""

    def __init__(self, question: str, choices: tuple[str, ...], mine: str) -> None:
        self.question, self.choices, self.mine = question, choices, mine
        self.field: Any = None  # the widget to answer with
        self._revealed: list[tuple[Any, tuple[Any, ...], str]] = []  # the display to unfold, its parts, what came

    def choose(self, answer: str) -> None:
        """The reader's answer; what has been revealed already unfolds."""
        self.mine = answer
        for shown, parts, came in self._revealed:
            shown.update(HTML(self._html(parts, came)))
        self._settle()

    def reveal(self, *parts: Any, came: Any = "") -> None:
        """Show these, folded until there is a prediction: pictures, step-throughs, texts. `came` is what was asked for,
        as the run has it; without it, this belongs to what another cell reveals."""
        text = str(came)
        shown = display(HTML(self._html(parts, text)), display_id=f"prediction-{next(_numbers)}")
        self._revealed.append((shown, parts, text))
        self._settle()

    def _settle(self) -> None:
        """Whoever has seen what came predicts no more. (To begin again, run the cell that asks.)"""
        if self.field and self.mine and self._revealed:
            self.field.disabled = True

    def _html(self, parts: tuple[Any, ...], came: str) -> str:
        inside = "\n".join(map(as_html, parts))
        if not self.mine:
            words = f"<p>What came: <b>{escape(came)}</b></p>\n" if came else ""
            return f"{CLOSED}\n{words}{inside}\n</details>"
        if not came:
            return f"<details open>{SUMMARY}What belongs to it</summary>\n{inside}\n</details>"
        mark = "as you said" if self.mine.strip().casefold() == came.strip().casefold() else "not as you said"
        words = f"<p>You predicted: <b>{escape(self.mine)}</b>. What came: <b>{escape(came)}</b>, {mark}.</p>"
        return f"<details open>{SUMMARY}Your prediction, and what came</summary>\n{words}\n{inside}\n</details>"


def predict(question: str, *choices: str, mine: str = "") -> Prediction:
    """Ask. With no choices the answer is typed."""
    if mine and choices and mine not in choices:
        raise ValueError(f"mine={mine!r} is none of the choices: {', '.join(map(repr, choices))}")
    found = Prediction(question, choices, mine)
    display({**_widget(found), "text/html": _plain(found), "text/plain": question}, raw=True)
    return found


def _plain(prediction: Prediction) -> str:
    """The question where there are no widgets."""
    listed = " &nbsp; ".join(f"<code>{escape(each)}</code>" for each in prediction.choices) or "a few words"
    how = (
        f"Your answer: <b>{escape(prediction.mine)}</b>. Now run the cells that follow."
        if prediction.mine
        else 'Run this cell to choose. No buttons? Write your answer into <code>mine=""</code>, and run it again.'
    )
    return f'<div style="{BOX}"><p><b>{escape(prediction.question)}</b></p><p>{listed}</p><p>{how}</p></div>'


def _widget(prediction: Prediction) -> dict[str, Any]:
    """Buttons, or a field to type in, as Jupyter's display takes them. Empty: there are no widgets here."""
    if os.environ.get(PLAIN):
        return {}
    try:
        import ipywidgets  # type: ignore[import-untyped]
    except ImportError:
        return {}
    label = ipywidgets.HTML(f"<b>{escape(prediction.question)}</b>")
    if prediction.choices:
        field = ipywidgets.ToggleButtons(options=prediction.choices, value=prediction.mine or None)
        field.style.button_width = "auto"
    else:
        field = ipywidgets.Text(value=prediction.mine, placeholder="your answer, then Enter", continuous_update=False)
    field.observe(lambda change: prediction.choose(change["new"] or ""), names="value")
    prediction.field = field
    shown: dict[str, Any] = ipywidgets.VBox([label, field])._repr_mimebundle_()
    return shown


def as_html(part: Any) -> str:
    """A picture, something that shows itself as HTML, or a text."""
    if png := getattr(part, "_repr_png_", lambda: None)():
        data = png[0] if isinstance(png, tuple) else png
        encoded = data if isinstance(data, str) else base64.b64encode(data).decode()
        return f'<img alt="what the run shows" style="max-width: 100%" src="data:image/png;base64,{encoded.strip()}">'
    if html := getattr(part, "_repr_html_", lambda: None)():
        return str(html)
    # The font is for nbconvert, whose style sheet sets none for HTML in an output; the wrapping for VS Code.
    return f'<pre style="font-family: monospace; white-space: pre-wrap">{escape(str(part))}</pre>'
