"""docs/inside-the-dataloader.html: the story of docs/story/story.md, each scene with the step-through of a real run.

python -m docs.make.story [SCENE ...]

Without names it has all of them; with names, for a quick look at the page, only these.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from html import escape
from pathlib import Path

import markdown_it
import numpy as np

import tracing
from docs.story.loads import SCENES, recorded
from tracing.trace.trace import Trace
from tracing.views.html_page import as_data, file_text
from tracing.views.step_through.page import Excerpt, content, page

DOCS = Path(__file__).resolve().parents[1]
STORY = DOCS / "story"
PAGE = DOCS / "inside-the-dataloader.html"
DATA = "the data of a scene"
WITHOUT_SCRIPTS = "The scene that plays here needs JavaScript. The text says what it shows."


def main(only: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # a report names its trace as it was opened
        traces = {}
        for name in only or SCENES:
            print(f"recording: {name}", flush=True)
            traces[name] = recorded(name)
        html = story(traces)
    PAGE.write_text(html, encoding="utf-8")
    print(f"{PAGE.name}: {len(html.encode()) / 1e6:.2f} MB")


def story(traces: dict[str, Trace]) -> str:
    """The page as HTML."""
    text = markdown_it.MarkdownIt().render((STORY / "story.md").read_text(encoding="utf-8"))
    title = re.search("<h1>(.*?)</h1>", text)[1]  # type: ignore[index]
    text = re.sub(r"<p>\[scene: (\w+)\]</p>", lambda found: figure(found[1], traces), text)
    text = re.sub(r"<p>\[report: (\w+)\]</p>", lambda found: verdict(traces.get(found[1])), text)
    scenes = re.findall("<h2>(.*?)</h2>", text)
    for number, scene in enumerate(scenes, 1):
        text = text.replace(f"<h2>{scene}</h2>", f'<h2 id="scene-{number}">{scene}</h2>', 1)
    links = "".join(f'<li><a href="#scene-{number}">{scene}</a></li>' for number, scene in enumerate(scenes, 1))
    text = text.replace('<h2 id="scene-1">', f'<nav aria-label="Scenes"><ol>{links}</ol></nav><h2 id="scene-1">', 1)
    pieces = {
        "title": title,
        "style": file_text("tracing.views", "page_base.css") + (STORY / "page.css").read_text(),
        "story": text,
        "template": as_data([DATA, page("", DATA).replace("<body>", '<body class="compact">')]),
        "script": (STORY / "page.js").read_text(),
    }
    return re.sub(r"{{(\w+)}}", lambda found: pieces[found[1]], (STORY / "page.html").read_text())


def figure(name: str, traces: dict[str, Trace]) -> str:
    if name not in traces:
        return ""
    data = as_data(content(traces[name], excerpt(name, traces[name])))
    return (
        f'<figure data-scene="{name}"><script type="application/json">{data}</script>'
        f"<noscript>{WITHOUT_SCRIPTS}</noscript></figure>"
    )


def excerpt(name: str, trace: Trace) -> Excerpt:
    """The events of a scene."""
    scene, events = SCENES[name], trace.events
    begins = (events["kind"] == scene.first) & ((scene.after < 0) | (events["task"] == scene.after))
    ends = (events["kind"] == scene.last) & ((scene.until < 0) | (events["task"] == scene.until))
    begin, end = int(np.flatnonzero(begins)[0]), int(np.flatnonzero(ends)[-1])
    return Excerpt(begin, end, begin)


def verdict(trace: Trace | None) -> str:
    return f"<pre>{escape(str(tracing.report(trace)))}</pre>" if trace else ""


if __name__ == "__main__":
    main(sys.argv[1:])
