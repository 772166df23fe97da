"""How Sphinx makes the site of the pages that docs/make/site.py has laid out."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.parsers import Parser

ROOT = Path(__file__).parents[2]

project = html_title = "minidl"
project_copyright = "the minidl authors"
nitpicky = True
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".py": "source"}
# What annotations name beside our public names (torch's, Python's, our own modules') is on no page.
nitpick_ignore_regex = [("py:.*", r"(?!minidl\.\w+$|tracing\.\w+$).*")]

html_theme = "furo"
html_favicon = "static/icon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
templates_path = ["templates"]
html_copy_source = False

nb_execution_mode = "off"
nb_render_image_options = {"alt": "the picture that the cell above draws"}
myst_heading_anchors = 4

default_role = "code"
autodoc_default_options = {"members": True, "member-order": "bysource"}
napoleon_use_ivar = True
autodoc_inherit_docstrings = False  # torch's are torch's
python_maximum_signature_line_length = 100


class SourceParser(Parser):
    """A Python file as a page: links to it lead there."""

    supported = ("source",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        name = self.env.docname
        self.env.metadata[name].update(orphan=True, nosearch=True)
        code = nodes.literal_block(inputstring, inputstring, language="python", linenos=True)
        code["highlight_args"] = {"lineanchors": "line"}
        document += nodes.section("", nodes.title("", f"{name}.py"), code, ids=["source"])


@functools.cache
def lines_of(path: Path) -> dict[str, int]:
    """Name -> the line of this file that defines it. Empty: it is no Python file."""
    if path.suffix != ".py" or not path.is_file():
        return {}
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name: node.lineno for node in found if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def open_as_it_is(app: Sphinx, doctree: nodes.document) -> None:
    """A link to what is no page, the playground say, opens it at its place beside the pages. A folder is only named."""
    for link in list(doctree.findall(addnodes.download_reference)):
        link.replace_self(nodes.reference("", "", *link.children, refuri=link["reftarget"]))
    for link in list(doctree.findall(addnodes.pending_xref)):
        target = (ROOT / app.env.docname).parent / link["reftarget"]
        if link["reftype"] == "myst" and target.is_dir() and not target.with_suffix(".md").is_file():
            link.replace_self(link.children)


def lead_to_the_line(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """[`name`](file.py) leads to the line that defines the name."""
    for link in doctree.findall(nodes.reference):
        lines = lines_of((ROOT / docname).parent / re.sub(r"html$", "py", link.get("refuri", "")))
        if link.astext() in lines:
            link["refuri"] += f"#line-{lines[link.astext()]}"


def add_fields(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """The fields of a class, from the comments beside them, or before them in its constructor."""
    source = inspect.getsource(thing) if what == "class" else ""
    beside = re.findall(r"^(?:    (\w+):|        self\.([a-z]\w*) =) .*?  # (.+)$", source, re.MULTILINE)
    before = re.findall(r"^        # (.+)\n        self\.([a-z]\w*) = ", source, re.MULTILINE)
    fields = [(own or set_there, comment) for own, set_there, comment in beside]
    fields += [(field, comment) for comment, field in before]
    if fields:
        lines += ["", "Attributes:", *(f"    {field}: {comment}" for field, comment in fields)]


def setup(app: Sphinx) -> None:
    app.add_source_parser(SourceParser)
    app.add_lexer("mermaid", TextLexer)  # static/site.js draws it
    app.connect("doctree-read", open_as_it_is, priority=400)  # before Sphinx collects what is to be downloaded
    app.connect("doctree-resolved", lead_to_the_line)
    app.connect("autodoc-process-docstring", add_fields, priority=400)  # before napoleon reads them
