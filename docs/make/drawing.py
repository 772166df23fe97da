"""The shapes of the pictures in docs/architecture.md, as SVG: floors, boxes, tubes, arrows, words."""

from __future__ import annotations

from html import escape

WIDTH = 1000
INK, FAINT, TUBE, PLAIN = "#222222", "#6a6a6a", "#f3d9a4", "#ffffff"
ROUND, SQUARE = 18, 4  # corners: of a thread, of anything else
NAME, FILE = 6.8, 6.63  # px: how wide a letter is on average, in the widest of the fonts
STYLE = """<style>
text { font-family: Helvetica, Arial, sans-serif; font-size: 13px; fill: #222222; text-anchor: middle }
.title { font-weight: bold; text-anchor: start }
.bold { font-weight: bold }
.beside { text-anchor: start }
.file { font-family: Menlo, Consolas, monospace; font-size: 11px; fill: #6a6a6a }
</style>"""
ARROWHEAD = f"""<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"
 orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>"""
Point = tuple[int, int]


def picture(height: int, title: str, *parts: str) -> str:
    """The whole file. It brings its own background, so it is as readable on a dark page."""
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<title>{escape(title)}</title>", STYLE, ARROWHEAD]
    return "\n".join([*head, rectangle(0, 0, WIDTH, height, PLAIN, 0), *parts, "</svg>"]) + "\n"


def floor(x: int, y: int, width: int, height: int, colour: str, title: str) -> list[str]:
    return [rectangle(x, y, width, height, colour, 6), text(x + 14, y + 20, title, "title")]


def box(
    x: int, y: int, width: int, height: int, name: str, file: str, corner: int = SQUARE, bold: bool = False
) -> list[str]:
    """A name, and under it the file. Raises ValueError if either is wider than the box."""
    if max(len(name) * NAME, len(file) * FILE) > width - 4:
        raise ValueError(f"{name!r} or {file!r} is wider than its box: {width} px")
    middle = x + width // 2
    names = [text(middle, y + 22, name, "bold" if bold else "plain"), text(middle, y + 40, file, "file")]
    return [rectangle(x, y, width, height, PLAIN, corner, FAINT), *(names if name else [])]


def rectangle(x: int, y: int, width: int, height: int, fill: str, corner: int, line: str = "none") -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{corner}" fill="{fill}" stroke="{line}"/>'


def text(x: int, y: int, words: str, kind: str = "plain") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def arrow(*way: Point, dashed: bool = False) -> str:
    """From the first point to the last, by those between."""
    dashes = ' stroke-dasharray="4 4"' if dashed else ""
    return f'<path d="{line(*way)}" fill="none" stroke="{INK}"{dashes} marker-end="url(#head)"/>'


def tube(begin: Point, end: Point) -> list[str]:
    """A pipe between two processes, with the arrow in it."""
    wide = f'<path d="{line(begin, end)}" stroke="{TUBE}" stroke-width="14" fill="none"/>'
    return [wide, arrow(begin, end)]


def line(*way: Point) -> str:
    return "M" + " L".join(f"{x} {y}" for x, y in way)
