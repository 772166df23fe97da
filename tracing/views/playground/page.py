"""The playground: a page that shows what a loader's options do, on a model of it, in a browser. `make docs` writes it:

python -m tracing.views.playground.page > docs/playground.html

page.html   the skeleton           results.js    what became of each batch, the bars of each thread, the numbers
page.css    the looks              stories.js    settings that have something to show
model.js    setting -> events      board.js      draws the queues, timeline.js the lanes
                                   controls.js   sliders, play, keys, and the link to a setting
"""

from __future__ import annotations

import sys

from tracing.views.html_page import COLOURS, as_data, made

SCRIPTS = ("model.js", "results.js", "stories.js", "timeline.js", "board.js", "controls.js")


def render() -> str:
    """The page as HTML."""
    return made("tracing.views.playground", SCRIPTS, {"data": as_data({"colours": COLOURS})})


if __name__ == "__main__":
    sys.stdout.write(render())
