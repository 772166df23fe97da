"""The course's notebooks: each runs, shows what is committed, and has all its parts."""

from __future__ import annotations

import ast
import base64
import builtins
import functools
import importlib.util
import inspect
import itertools
import keyword
import multiprocessing.queues
import pydoc
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch.utils.data
from nbclient.exceptions import CellExecutionError

from minidl.data.fetch import IterableFetcher, MapFetcher
from minidl.parallel import ParallelIterator
from notebooks import build, show
from notebooks.predict import BOX, CLOSED, SUMMARY
from tests.docs import pages
from tests.minidl.test_structure import exists

ROOT = Path(__file__).parents[2]
PATHS = build.notebooks()
EXERCISES = {  # of each notebook
    "00": [], "01": [], "02": ["01", "03", "04"], "03": ["02"], "04": ["05", "14"], "05": ["06"], "06": ["07", "08"],
    "07": ["09"], "08": ["10"], "09": ["11"], "10": ["12", "13", "15"], "11": [], "12": ["17"], "13": [], "14": ["16"],
    "15": [], "16": [], "17": [], "18": [], "19": [],
}  # fmt: skip
every_notebook = pytest.mark.parametrize("path", PATHS, ids=[path.name[:2] for path in PATHS])


@functools.cache
def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def cells(path: Path, kind: str) -> list[str]:
    return [cell.source for cell in read(path).cells if cell.cell_type == kind]


def prose(path: Path) -> str:
    """Its Markdown, without the blocks of code in it."""
    return pages.prose("\n\n".join(cells(path, "markdown")))


def outputs(notebook: Any) -> Iterator[tuple[int, Any]]:
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            yield number, output


PICTURE = re.compile(r"(?<=data:image/png;base64,)[\w+/=]+")  # in HTML


def texts(output: Any) -> dict[str, str]:
    """The texts of an output by their kind: a stream's text, Markdown, HTML without its pictures, plain text."""
    data = {kind: "".join(data) for kind, data in output.get("data", {}).items() if kind.startswith("text/")}
    texts = {kind: PICTURE.sub("…", text) for kind, text in data.items()}
    return texts | ({output.name: output.text} if output.output_type == "stream" else {})


def pictures(output: Any) -> list[str]:
    """The pictures of an output, in base64: itself, or those in its HTML (of what a prediction folds)."""
    data = output.get("data", {})
    own = [data["image/png"]] if "image/png" in data else []
    return own + PICTURE.findall("".join(data.get("text/html", "")))


# ---- executed


# These start programs and processes of their own, or simulate for long. The others of which the tests run all have a
# kernel in common: alone, each would need two seconds to import torch, and one for the rest.
LONG = {"00", "11", "13", "14", "16", "18", "19"}
SHORT = [path for path in PATHS if path.name[:2] not in LONG]


@pytest.mark.full
@pytest.mark.timeout(180)
@every_notebook
def test_it_runs_and_shows_what_is_committed(path: Path):
    shows_what_is_committed(path, build.executed(path))


@pytest.fixture(scope="module")
def execute() -> Iterator[Callable[[Path], Any]]:
    """A function that executes a notebook, in the same kernel each time."""
    with tempfile.TemporaryDirectory(prefix="nb-") as folder:
        client, start = build.prepared(None, folder)

        def executed(path: Path) -> Any:
            client.reset_execution_trackers()
            client.nb = nbformat.read(path, as_version=4)
            client.nb.cells.append(nbformat.v4.new_code_cell("%reset -f"))
            for number, cell in enumerate(client.nb.cells):
                client.execute_cell(cell, number)
            return client.nb

        with client.setup_kernel(**start):
            yield executed


@pytest.mark.parametrize("path", SHORT, ids=[path.name[:2] for path in SHORT])
def test_after_others_it_shows_what_is_committed_too(path: Path, execute: Callable[[Path], Any]):
    shows_what_is_committed(path, execute(path))


def shows_what_is_committed(path: Path, executed: Any) -> None:
    committed, now = list(outputs(read(path))), list(outputs(executed))
    assert [(number, kinds(output)) for number, output in now] == [
        (number, kinds(output)) for number, output in committed
    ], [(number, output.text) for number, output in now if output.output_type == "stream"]
    for (number, then), (_, output) in zip(committed, now, strict=True):
        for kind, text in texts(output).items():
            if found := different(texts(then)[kind], text):
                pytest.fail(
                    f"cell {number} shows something else in {kind}; `make notebooks` if that is meant:\n{found}"
                )
        for before, picture in zip(pictures(then), pictures(output), strict=True):
            # Within a pixel: versions of matplotlib round the space around a picture differently.
            assert size_of_picture(picture) == pytest.approx(size_of_picture(before), abs=1), f"cell {number}"


def kinds(output: Any) -> set[str]:
    return {output.output_type, *output.get("data", ()), *texts(output)}


def different(then: str, now: str) -> str:
    """Where they begin to differ; "" if they are equal."""
    then, now = steady(then), steady(now)
    if then == now:
        return ""
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(then, now, strict=False))
    at = sum(1 for _ in equal)
    return "\n".join(
        f"{name}: …{text[max(0, at - 80) : at + 160]}…" for name, text in (("committed", then), ("now", now))
    )


def steady(text: str) -> str:
    """Without the colours of the step-through's source: Python's tokenizer sees an f-string as one token up to 3.11,
    as several from 3.12 on."""
    return re.sub(r"\\u003c/?[biu]>", "", text)


def size_of_picture(picture: str) -> tuple[int, int]:
    data = base64.b64decode(picture)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


# ---- as committed


@every_notebook
def test_it_is_committed_as_build_writes_it(path: Path):
    notebook = nbformat.read(path, as_version=4)
    assert path.read_text(encoding="utf-8") == nbformat.writes(build.steady(notebook), version=4) + "\n"
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), "not from top to bottom"


@every_notebook
def test_it_prints_nothing_on_stderr_and_nothing_about_the_machine(path: Path):
    here = {str(ROOT), str(Path.home()), tempfile.gettempdir()} - {"/"}
    for number, output in outputs(read(path)):
        assert output.output_type != "error", number
        assert output.get("name") != "stderr", (number, output.text)
        for text in texts(output).values():
            found = re.findall(r"(?<![\w.<])/(?:home|root|tmp|work|usr|opt|var|Users|private|dev)/[^\s'\"<&]*", text)
            assert not found, (number, found)
            assert not [folder for folder in here if folder in text], number
            assert "Traceback (most" not in text, number


@every_notebook
def test_it_reads_well(path: Path):
    assert 10 <= len(read(path).cells) <= 25
    for source in cells(path, "code"):
        assert sum(bool(line.strip()) for line in source.splitlines()) <= 25, source
        assert not re.search(r"^\s*[%!]", source, flags=re.MULTILINE), source
        ast.parse(source)
    for source in cells(path, "markdown"):
        words = [word for word in source.split() if re.search(r"\w", word)]
        assert len(words) <= 150, f"{len(words)} words: {source}"
        assert source.count("<details>") == source.count("</details>"), source
        assert source.count("<summary>") == source.count("</summary>"), source
    for source in [*cells(path, "code"), *cells(path, "markdown")]:
        assert source.strip(), "an empty cell"
        assert all(line == line.rstrip() for line in source.splitlines()), source


# ---- its parts


@every_notebook
def test_it_has_all_its_parts(path: Path):
    number = path.name[:2]
    first, code = cells(path, "markdown")[0], cells(path, "code")
    assert first.startswith(f"# {int(number)}. ") and "?" in first, "no title, or no question"
    heads = [
        re.findall(r"^#+ (.*)", cell.source, flags=re.MULTILINE) if cell.cell_type == "markdown" else []
        for cell in read(path).cells
    ]
    predicts = [n for n, found in enumerate(heads) if any("prediction" in head.lower() for head in found)]
    assert predicts, "no prediction to make"
    frames = [n - 1 for n, output in outputs(read(path)) if "<iframe" in texts(output).get("text/html", "")]
    drawn = [n - 1 for n, output in outputs(read(path)) if pictures(output)] + frames
    assert any(n > predicts[0] for n in drawn), "no picture or step-through after the prediction"
    assert len(frames) <= 1, "each is 100 KB or more"
    assert any("show.source(" in source for source in code), "no line of minidl is shown"
    changes = [n for n, found in enumerate(heads) if any("change" in head.lower() for head in found)]
    assert changes and changes[-1] > predicts[0], "no experiment to change"


@every_notebook
def test_it_asks_before_it_shows(path: Path):
    """What a prediction is about is folded, and no picture is seen before. What came is one of the choices."""
    choices, came = set(), []
    for number, output in outputs(read(path)):
        html = texts(output).get("text/html", "")
        if BOX in html:
            choices |= set(re.findall("<code>(.*?)</code>", html))
        elif html.startswith(CLOSED):
            came += re.findall("^<p>What came: <b>(.*)</b></p>$", html, flags=re.MULTILINE)
            assert html.endswith("</details>") and set(came) <= choices, f"cell {number}: {came}, not in {choices}"
        else:
            assert came or not (pictures(output) or "<iframe" in html), f"cell {number} shows what should be predicted"
    assert came, "nothing to predict"
    for cell, after in itertools.pairwise(read(path).cells):
        folds = any(texts(output).get("text/html", "").startswith(CLOSED) for output in cell.get("outputs", []))
        if folds and after.cell_type == "markdown":
            assert after.source.startswith(("<details>", "## ")), f"tells what is folded: {after.source}"
    source = "\n".join(cells(path, "code"))
    assert len(re.findall(r"\bpredict\(", source)) == source.count('mine=""'), "without widgets: nowhere to answer"


@every_notebook
def test_it_leads_on(path: Path):
    """In its last cell: its exercises, and the next notebook."""
    last = read(path).cells[-1].source
    assert re.search("^## Exercises", last, flags=re.MULTILINE)
    assert set(re.findall(r'check(?:\("| )(\d\d)', last)) >= set(EXERCISES[path.name[:2]])
    following = [each.name for each in PATHS if each.name > path.name][:1]
    assert all(f"]({name})" in last for name in following)


@every_notebook
def test_its_links_lead_somewhere(path: Path):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        assert "://" not in link, f"{link}: a notebook needs no network"
        assert (path.parent / link.partition("#")[0]).resolve().is_relative_to(ROOT), link
    assert not list(pages.broken_links(path, prose(path)))


# ---- what it names


@functools.cache
def known_names() -> set[str]:
    """All names defined or used in minidl, in tracing, and in torch's and Python's counterparts."""
    torch_data = Path(torch.utils.data.__file__).parent
    files = [*torch_data.glob("*.py"), *(torch_data / "_utils").glob("*.py"), Path(multiprocessing.queues.__file__)]
    for package in "minidl", "tracing":
        files += (ROOT / package).rglob("*.py")
    files += (ROOT / "notebooks").glob("*.py")  # not the exercises: what a learner writes may be wrong
    names = {*dir(builtins), *keyword.kwlist, *keyword.softkwlist, *dir(torch), *dir(torch.Tensor)}
    return names.union(*(names_in(file.read_text(encoding="utf-8")) for file in files))


def names_in(source: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        for name in ("name", "attr", "id", "arg", "module"):  # of a definition, an attribute, a name, an argument
            if isinstance(found := getattr(node, name, None), str):
                names |= {found, *found.split(".")}
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            names.add(node.value)  # a key of a mapping, the name of a queue
    return names


@every_notebook
def test_what_it_names_exists(path: Path):
    own = set().union(*(names_in(source) for source in cells(path, "code")))
    roots = {"minidl", "tracing", "torch", "notebooks"}
    for quoted in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(path)):
        name = re.sub(r"\(.*\)$", "", quoted)  # a call: of what?
        if re.fullmatch(r"[\w/-]+\.(py|md|ipynb|txt)", name):
            folders = [path.parent, ROOT, ROOT / "minidl", Path(torch.utils.data.__file__).parent]
            assert any((folder / name).exists() for folder in folders), f"no file {name}"
        elif re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
            first, *rest = name.split(".")
            if rest and first in roots - own:
                assert exists(name) or pages.found(name), f"there is no {name}"
            else:
                missing = [part for part in (first, *rest) if part not in known_names() | own]
                assert not missing, f"`{quoted}`: nothing is called {missing[0]}"


# ---- what its code uses: not all are executed each time


SHOWN = re.compile(r"^```python\n# (\S+\.py)\n\n(.*?)\n```$", flags=re.DOTALL | re.MULTILINE)


@every_notebook
def test_the_source_that_it_shows_is_that_of_the_package(path: Path):
    shown = [found for _, output in outputs(read(path)) for found in SHOWN.findall("".join(texts(output).values()))]
    assert shown
    for file, code in shown:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert any(unindented(code) in unindented(each) for each in (text, show.without_events(text))), (file, code)


def unindented(text: str) -> str:
    """With an end of line before and after it."""
    return "\n".join(["", *(line.strip() for line in text.splitlines()), ""])


@every_notebook
def test_what_its_code_imports_exists_and_can_be_called_so(path: Path):
    tree = ast.parse("\n".join(cells(path, "code")))
    come_from = dict(imported(tree))
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else node
        if not isinstance(called, (ast.Name, ast.Attribute)):
            continue
        first, _, rest = ast.unparse(called).partition(".")
        if first not in come_from or not re.fullmatch(r"[\w.]*", rest):
            continue
        name = f"{come_from[first]}.{rest}".rstrip(".")
        assert exists(name) or importlib.util.find_spec(name), f"there is no {name}"
        if isinstance(node, ast.Call):
            given = dict.fromkeys(each.arg for each in node.keywords if each.arg)
            inspect.signature(pydoc.locate(name)).bind_partial(*without_stars(node.args), **given)


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(its name here, its name) of all that comes from this repository."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for each in node.names:
                if (name := f"{module}{each.name}").split(".")[0] in ("minidl", "tracing", "notebooks"):
                    yield each.asname or each.name.split(".")[0], name if module or each.asname else name.split(".")[0]


def without_stars(arguments: list[ast.expr]) -> list[ast.expr]:
    return [each for each in arguments if not isinstance(each, ast.Starred)]


# ---- the tools


def test_a_function_that_an_exercise_asks_for_is_folded():
    folded = show.source_markdown(ParallelIterator._next_task)
    summary = "<code>_next_task</code>: exercises 7 and 8 ask you to write it. Open when you have."
    assert f"<details>{SUMMARY}{summary}</summary>\n\n```python\n# minidl/parallel.py\n" in folded
    assert folded.endswith("```\n\n</details>\n\n</div>")  # its fence is Markdown: an empty line before and after
    assert "exercise 1 asks you" in show.source_markdown(MapFetcher)  # it holds the function
    assert "<details>" not in show.source_markdown(IterableFetcher.__init__)


def test_the_course_is_complete():
    assert [path.name[:2] for path in PATHS] == sorted(EXERCISES)


def test_a_name_that_is_no_notebook_is_reported():
    assert build.notebooks(["00", "notebooks/01"]) == PATHS[:2]
    with pytest.raises(ValueError, match="no notebook's name begins with '99': there are 00-a-dataloader-on-one-page"):
        build.notebooks(["99"])


def test_a_cell_that_raises_is_reported(tmp_path: Path):
    path = tmp_path / "00-wrong.ipynb"
    cell = nbformat.v4.new_code_cell("import pathlib\nprint(pathlib.Path.cwd().name)\n1 / 0")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        build.executed(path)


def test_an_error_in_a_simulated_program_is_raised_in_the_notebook():
    with pytest.raises(ZeroDivisionError):
        show.run(lambda: 1 / 0)
