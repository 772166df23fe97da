"""docs/inside-the-dataloader.html, in a real browser: every scene plays from its first event to its last and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import markdown_it
import pytest

from tests.tracing.views.browser import Page

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[3] / "docs"
STORY = (DOCS / "inside-the-dataloader.html").read_text(encoding="utf-8")
TEXT = (DOCS / "story/story.md").read_text(encoding="utf-8")
# To the last event and back: whether it came there, and back to what was shown; the line of source; whether it is wide.
PLAY = """
(async () => {
  const figure = document.querySelector("figure[data-scene=%s]");
  figure.scrollIntoView();
  while (!figure.querySelector("iframe")?.contentDocument?.querySelector("#sentence .words")?.textContent)
    await new Promise((go) => setTimeout(go, 10));
  const page = figure.querySelector("iframe").contentDocument, shown = () => page.getElementById("board").outerHTML;
  const [back, on, slider] = ["back", "on", "scrub"].map((id) => page.getElementById(id));
  const begun = shown(), [first, last] = [Number(slider.min), Number(slider.max)];
  for (let k = first; k < last; k++) on.click();
  const ended = Number(slider.value) === last && shown() !== begun, source = page.querySelector(".emits").textContent;
  for (let k = first; k < last; k++) back.click();
  const wide = [page, document].some(({ documentElement: root }) => root.scrollWidth > root.clientWidth);
  return [ended, shown() === begun, source.includes("emit("), wide];
})()
"""


def test_every_scene_plays_to_its_end_and_back(open_html: Callable[..., Page]) -> None:
    """On a phone."""
    page = open_html(STORY, width=375, height=800)
    scenes = re.findall(r"^\[scene: (\w+)\]$", TEXT, re.MULTILINE)
    assert 10 <= len(scenes) <= 12
    for scene in scenes:
        assert page.evaluate(PLAY % scene) == [True, True, True, False], scene


def test_the_page_has_todays_text_and_is_small() -> None:
    paragraphs = markdown_it.MarkdownIt().render(re.sub(r"\[\w+: \w+\]", "", TEXT)).splitlines()
    story = re.sub(r'<h2 id="scene-\d+">', "<h2>", STORY)
    assert not [line for line in paragraphs if line not in story], "python -m docs.make.story"
    assert len(STORY.encode()) < 1_500_000
