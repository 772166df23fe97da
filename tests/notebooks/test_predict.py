"""Predictions: what is folded, what unfolds, and what stands beside each other."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from IPython.display import Image
from nbclient import NotebookClient

from notebooks.predict import CLOSED, PLAIN, Prediction, predict

PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00"
    b"\x00\rIDATx\x9cc\xf8\xff\xff?\x00\x05\xfe\x02\xfe\xa7\x9a\xa0\xa0\x00\x00\x00\x00IEND\xaeB`\x82"
)
ASK = 'from notebooks.predict import predict\nguess = predict("How many?", "two", "four"{mine})'
REVEAL = 'guess.reveal("2 workers, 2 each", came="four")'
MORE = 'guess.reveal("and a picture of it")'


def executed(*sources: str) -> list[list[Any]]:
    """The outputs of each cell, from a real kernel."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


def html(prediction: Prediction, *parts: Any, came: str = "") -> str:
    return prediction._html(parts, came)


def test_what_came_is_folded_until_there_is_a_prediction():
    guess = Prediction("How many?", ("two", "four"), "")
    shown = html(guess, Image(PIXEL, format="png"), "<b>", came="four")
    assert shown.startswith(CLOSED) and "&lt;b&gt;" in shown
    assert re.search(r'<img alt="[^"]+" style="max-width: 100%" src="data:image/png;base64,iVBOR[\w+/=]+">', shown)
    guess.choose("two")
    shown = html(guess, came="four")
    assert shown.startswith("<details open>")
    assert "You predicted: <b>two</b>. What came: <b>four</b>, not as you said." in shown
    guess.choose("four")
    assert "four</b>, as you said" in html(guess, came="four")


def test_an_answer_that_is_none_of_the_choices_is_refused():
    with pytest.raises(ValueError, match="mine='six' is none of the choices: 'two', 'four'"):
        predict("How many?", "two", "four", mine="six")


def test_in_a_kernel_a_click_unfolds_what_was_revealed():
    (asked,), (closed, *_), (more, *_), _ = executed(ASK.format(mine=""), REVEAL, MORE, 'guess.choose("two")')
    assert set(asked.data) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert "mine=" in asked.data["text/html"]  # where a page shows no widgets
    assert "<details open>" in closed.data["text/html"]  # this very output has been updated
    assert "You predicted: <b>two</b>" in closed.data["text/html"]
    assert "<details open>" in more.data["text/html"] and "a picture of it" in more.data["text/html"]


def test_without_widgets_the_answer_is_written_into_the_cell(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(PLAIN, "1")
    (asked,), (closed,), _, (opened,) = executed(ASK.format(mine=""), REVEAL, ASK.format(mine=', mine="four"'), REVEAL)
    assert set(asked.data) == {"text/html", "text/plain"} and "mine=" in asked.data["text/html"]
    assert CLOSED in closed.data["text/html"]
    assert "four</b>, as you said" in opened.data["text/html"]
