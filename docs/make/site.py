"""The site: `make site`, or, in an environment with docs/site/requirements.txt,

python -m docs.make.site

1. The pages, and what they link to, are laid out as in the repository, with the pages of docs/site on top.
2. Sphinx makes site/ of them. A warning is an error.
3. Every link in site/ must lead to a file, and to a place in it; nothing may be loaded from another host.

minidl, whose docstrings are shown, imports torch: that of .venv, since another one would be 200 MB more.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.cmd.build import build_main

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "docs" / "site"
OUT = ROOT / "out" / "site"
PAGES = OUT / "pages"
SITE = ROOT / "site"
SHOWN = "C*.md docs/*.md docs/*.html docs/pictures/*.* minidl/**/*.py notebooks/*.ipynb notebooks/**/*.md"
TEMPLATE = (OWN / "exercise.txt").read_text(encoding="utf-8")
OPTIONS = "-E -W --keep-going -q -j auto"


def main() -> int:
    # Behind this environment's own packages: their versions are the ones meant.
    sys.path += map(str, ROOT.glob(".venv/lib/python*/site-packages"))
    print("site: Sphinx makes it of docs/, the course and the docstrings (1 to 2 minutes)", flush=True)
    lay_out()
    failed = build_main([*OPTIONS.split(), "-c", str(OWN), "-d", f"{OUT}/read", str(PAGES), f"{OUT}/html"])
    (OUT / "html").rename(SITE)
    for path in PAGES.rglob("*"):
        if path.suffix in (".html", ".js", ".wrong"):  # no pages of Sphinx, but linked to
            copy(path, SITE / path.relative_to(PAGES))
    story = SITE / "docs/inside-the-dataloader.html"
    story.write_text(story.read_text(encoding="utf-8").replace("../README.md", "../index.html"), encoding="utf-8")
    wrong = sorted(set(broken_links()))
    print("".join(f"{each}\n" for each in wrong), end="", file=sys.stderr)
    print(f"site: {len(list(SITE.rglob('*.html')))} pages, {len(wrong)} broken links: site/index.html")
    return int(bool(failed or wrong))


# ---- 1. laying out


def lay_out() -> None:
    for made in (OUT, SITE):
        shutil.rmtree(made, ignore_errors=True)
    for pattern in SHOWN.split():
        for path in ROOT.glob(pattern):
            copy(path, PAGES / path.relative_to(ROOT))
    for page in [*PAGES.rglob("*.md"), *PAGES.rglob("*.ipynb")]:
        for link in re.findall(r"\]\(([^)\s#:]+)", page.read_text(encoding="utf-8")):
            target = (ROOT / page.relative_to(PAGES)).parent / link
            if target.is_file():
                copy(target, PAGES / target.resolve().relative_to(ROOT))
    for path in OWN.rglob("*.md"):
        copy(path, PAGES / path.relative_to(OWN))
    write_exercises()


def copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def write_exercises() -> None:
    """Each exercise with what a learner needs, and without what gives the answer away."""
    from notebooks.exercises.exercise import exercises
    from notebooks.exercises.skeleton import generate

    for each in exercises().values():
        page = PAGES / "notebooks/exercises/texts" / f"{each.id}.md"
        title = each.title.replace("__", r"\_\_")
        task = page.read_text(encoding="utf-8").partition("## Task")[2].partition("## Hints")[0]
        skeleton = generate(each).partition('\n"""\n')[2].strip()
        page.write_text(TEMPLATE.format(each=each, title=title, task=task, skeleton=skeleton), encoding="utf-8")


# ---- 3. links


class Page(HTMLParser):
    """The places in a page, and what it refers to: (tag, address)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str | None] = set()
        self.links: list[tuple[str, str]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.places |= {value for name, value in attrs if name in ("id", "name")}
        self.links += [(tag, value or "") for name, value in attrs if name in ("href", "src")]


def broken_links() -> Iterator[str]:
    pages = {path: Page(path) for path in SITE.rglob("*.html")}
    for path, page in pages.items():
        for tag, link in page.links:
            url = urlsplit(link)
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if url.scheme or url.netloc:
                wrong = url.netloc and tag != "a"  # it would be loaded
            elif url.fragment and target in pages:
                wrong = unquote(url.fragment) not in pages[target].places
            else:
                wrong = not target.is_file()
            if wrong:
                yield f"{path.relative_to(SITE)}: {link}"


if __name__ == "__main__":
    sys.exit(main())
