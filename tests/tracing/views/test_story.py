"""docs/inside-the-dataloader.html, in a real browser: every scene plays from its first event to its last and back."""

from __future__ import annotations

import re
from pathlib import Path

import markdown_it

from tests.tracing.views.browser import OpenPage

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
  const side = page.getElementById("side");  // most of a step's time: it is drawn for the last event only
  for (let k = first; k < last; k++) { side.hidden = k < last - 1; on.click(); }
  const ended = Number(slider.value) === last && shown() !== begun, source = page.querySelector(".emits").textContent;
  side.hidden = true;
  for (let k = first; k < last; k++) back.click();
  side.hidden = false;
  const wide = [page, document].some(({ documentElement: root }) => root.scrollWidth > root.clientWidth);
  return [ended, shown() === begun, source.includes("emit("), wide];
})()
"""


def test_every_scene_plays_to_its_end_and_back(open_html: OpenPage) -> None:
    """On a phone."""
    page = open_html(STORY, width=375, height=800)
    scenes = re.findall(r"^\[scene: (\w+)\]$", TEXT, re.MULTILINE)
    assert 10 <= len(scenes) <= 12
    for scene in scenes:
        assert page.evaluate(PLAY % scene) == [True, True, True, False], scene


PRINTED = """
dispatchEvent(new Event("beforeprint"));
const shown = [...document.querySelectorAll("figure[data-scene]")].map((figure) => {
  const frame = figure.querySelector("iframe");
  const shown = frame.contentDocument.querySelector("#sentence .words").textContent;
  return shown !== "" && frame.clientHeight >= frame.contentDocument.body.scrollHeight;
});
"""
AFTERWARDS = """
(async () => {
  for (const figure of document.querySelectorAll("figure[data-scene]")) {
    figure.scrollIntoView();
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  }
  return [...document.querySelectorAll("figure[data-scene]")].map((each) => each.querySelectorAll("iframe").length);
})()
"""


def test_every_scene_is_printed(open_html: OpenPage) -> None:
    """A browser waits for nothing once it begins to print. Afterwards each is still there once."""
    page, scenes = open_html(STORY), len(re.findall(r"^\[scene: ", TEXT, re.MULTILINE))
    assert page.evaluate(f"{PRINTED} shown") == [True] * scenes
    assert page.evaluate(AFTERWARDS) == [1] * scenes


def test_the_page_has_todays_text_and_is_small() -> None:
    paragraphs = markdown_it.MarkdownIt().render(re.sub(r"\[\w+: \w+\]", "", TEXT)).splitlines()
    story = re.sub(r'<h2 id="scene-\d+">', "<h2>", STORY)
    assert not [line for line in paragraphs if line not in story], "python -m docs.make.story"
    assert len(STORY.encode()) < 1_500_000
