"""The playground: a page that shows what a loader's options do, on a model of it, in a browser: docs/playground.html.
`make docs` writes it.

page.html   the skeleton           results.js    what became of each batch, the bars of each thread, the numbers
page.css    the looks              stories.js    settings that have something to show
model.js    setting -> events      board.js      draws the queues, timeline.js the lanes
                                   controls.js   sliders, play, keys, and the link to a setting
"""

from __future__ import annotations

from tracing.views.html_page import COLOURS, as_data, made

SCRIPTS = ("model.js", "results.js", "stories.js", "timeline.js", "board.js", "controls.js")


def render() -> str:
    """The page as HTML."""
    return made("tracing.views.playground", SCRIPTS, {"data": as_data({"colours": COLOURS})})
