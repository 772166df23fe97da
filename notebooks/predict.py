"""Predictions that count: the reader answers first, and what the run shows is folded until then.

guess = predict("Which batches wait in the reorder buffer?", "1", "1 and 3", "none", mine="")
...
guess.reveal(show.timeline(run), came="1 and 3")      beside it: what was predicted

In JupyterLab, VS Code and the classic notebook the choices are buttons (ipywidgets), and what is revealed unfolds at
the click. Where there are no widgets, the reader writes the answer into the cell, as `mine`; and whoever only reads a
notebook opens the fold.
"""

from __future__ import annotations

import base64
import itertools
import os
from html import escape
from typing import Any

from IPython.display import HTML, display

PLAIN = "MINIDL_PLAIN"  # set while the notebooks are built: a committed notebook has no widgets
BOX = "border-left: 3px solid #2b6cdf; padding: 2px 12px; margin: 4px 0"
CLOSED = "Predict first (above); then open this."
_numbers = itertools.count(1)


class Prediction:
    """A question, its choices, what the reader has answered, and where the answer is shown."""

    def __init__(self, question: str, choices: tuple[str, ...], mine: str) -> None:
        self.question, self.choices, self.mine = question, choices, mine
        self._shown: Any = None  # the display to unfold
        self._parts: tuple[Any, ...] = ()
        self._came = ""

    def choose(self, answer: str) -> None:
        """The reader's answer; what has been revealed already unfolds."""
        self.mine = answer
        if self._shown is not None:
            self._shown.update(HTML(self._html()))

    def reveal(self, *parts: Any, came: Any = "") -> None:
        """Show these, folded until there is a prediction: pictures, step-throughs, texts. `came` is what was asked for,
        as the run has it."""
        self._parts, self._came = parts, str(came)
        self._shown = display(HTML(self._html()), display_id=f"prediction-{next(_numbers)}")

    def _html(self) -> str:
        inside = "\n".join(map(as_html, self._parts))
        if not self.mine:
            came = f"<p>What came: <b>{escape(self._came)}</b></p>\n" if self._came else ""
            return f"<details><summary>{CLOSED}</summary>\n{came}{inside}\n</details>"
        same = self.mine.strip().casefold() == self._came.strip().casefold()
        mark = "as you said" if same else "not as you said"
        words = f"<p>You predicted: <b>{escape(self.mine)}</b>. "
        words += f"What came: <b>{escape(self._came)}</b>, {mark}.</p>" if self._came else "</p>"
        return f"<details open><summary>Your prediction, and what came</summary>\n{words}\n{inside}\n</details>"


def predict(question: str, *choices: str, mine: str = "") -> Prediction:
    """Ask. With no choices the answer is typed."""
    if mine and choices and mine not in choices:
        raise ValueError(f"mine={mine!r} is none of the choices: {', '.join(map(repr, choices))}")
    found = Prediction(question, choices, mine)
    if not _with_widgets(found):
        listed = " &nbsp; ".join(f"<code>{escape(each)}</code>" for each in choices) or "a few words"
        how = 'Write your answer into this cell, between the quotes of <code>mine=""</code>, and run it.'
        display(HTML(f'<div style="{BOX}"><p><b>{escape(question)}</b></p><p>{listed}</p><p>{how}</p></div>'))
    return found


def _with_widgets(prediction: Prediction) -> bool:
    """Show buttons, or a field to type in. False: there are no widgets here."""
    if os.environ.get(PLAIN):
        return False
    try:
        import ipywidgets  # type: ignore[import-untyped]
    except ImportError:
        return False
    label = ipywidgets.HTML(f"<b>{escape(prediction.question)}</b>")
    field: Any
    if prediction.choices:
        field = ipywidgets.ToggleButtons(options=prediction.choices, value=prediction.mine or None)
        field.style.button_width = "auto"
    else:
        field = ipywidgets.Text(value=prediction.mine, placeholder="your answer, then Enter", continuous_update=False)
    field.observe(lambda change: prediction.choose(change["new"] or ""), names="value")
    display(ipywidgets.VBox([label, field]))
    return True


def as_html(part: Any) -> str:
    """A picture, something that shows itself as HTML, or a text."""
    if png := getattr(part, "_repr_png_", lambda: None)():
        data = png[0] if isinstance(png, tuple) else png
        encoded = data if isinstance(data, str) else base64.b64encode(data).decode()
        return f'<img alt="what the run shows" src="data:image/png;base64,{encoded.strip()}">'
    if html := getattr(part, "_repr_html_", lambda: None)():
        return str(html)
    return f"<pre>{escape(str(part))}</pre>"
