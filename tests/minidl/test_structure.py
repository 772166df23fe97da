"""The rules of the code, held by tests: what may import what, whether references to torch are true, how long
things are."""

from __future__ import annotations

import ast
import functools
import importlib
import io
import multiprocessing.queues
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest
import torch.multiprocessing.queue
import torch.multiprocessing.reductions
import torch.utils.data

import minidl
import tracing
from minidl.events import Kind

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "minidl").rglob("*.py"))
TRACING = sorted((ROOT / "tracing").rglob("*.py"))
SYSTEM = {"multiprocessing", "threading", "time", "signal", "os", "subprocess", "select", "selectors", "socket", "mmap"}


def imports(path: Path, typing: bool = True) -> set[str]:
    """What a module imports, wherever in it, as dotted names; with `typing`, also what only the type checker does."""
    names = set()
    left_out = set() if typing else {id(node) for block in type_checking(path) for node in ast.walk(block)}
    for node in ast.walk(parsed(path)):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def type_checking(path: Path) -> list[ast.If]:
    ifs = (node for node in ast.walk(parsed(path)) if isinstance(node, ast.If))
    return [node for node in ifs if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def ours() -> dict[str, set[str]]:
    """Each module of minidl, tracing and notebooks -> those of them that it imports, but for typing."""
    found = [*MODULES, *TRACING, *(ROOT / "notebooks").rglob("*.py")]
    modules = {dotted(path): path for path in found if "answers" not in path.parts and "skeletons" not in path.parts}
    graph = {}
    for name, path in modules.items():
        used = {each if each in modules else each.rpartition(".")[0] for each in imports(path, typing=False)}
        graph[name] = {each for each in used if each in modules} - {name}
    return graph


def test_only_the_real_world_touches_the_operating_system():
    for path in MODULES:
        if not path.name.startswith("real"):
            used = {name.split(".")[0] for name in imports(path)} & SYSTEM
            assert not used, f"{path.relative_to(ROOT)} imports {used}"


def test_minidl_never_imports_tracing():
    for path in MODULES:
        assert not any(name.split(".")[0] == "tracing" for name in imports(path)), path


# A trace flows down this list: what a room makes, the rooms below it use. So each imports only from those above it.
ROOMS = ("recording", "trace", "analysis", "views", "ranks", "cli")


def test_imports_go_up_the_rooms_of_tracing():
    for path in TRACING:
        room, *_ = path.relative_to(ROOT / "tracing").parts
        if room in ROOMS:  # else it is the package itself, whose public names come from all rooms, or its __main__
            for name in imports(path):
                package, _, used = name.partition(".")
                if package == "tracing":
                    above = ROOMS.index(used.split(".")[0]) if used.split(".")[0] in ROOMS else len(ROOMS) - 1
                    assert above <= ROOMS.index(room), f"{path.relative_to(ROOT)} imports {name}"


def test_tracing_takes_nothing_of_minidl_but_its_events_and_laws():
    """Except where it runs a loader: on the simulated machine, in the demo, and in place of torch's."""
    users = ("recording/simulated_run.py", "cli/demo_training.py", "cli/stand_in.py")
    for path in TRACING:
        if not str(path.relative_to(ROOT / "tracing")).startswith(users):
            of_minidl = {name for name in imports(path, typing=False) if name.split(".")[0] == "minidl"}
            assert all(name.startswith(("minidl.events", "minidl.laws")) for name in of_minidl), path


def test_data_knows_nothing_of_the_loader():
    known = ("minidl.events", "minidl.data", "minidl.transport")
    for name, imported in ours().items():
        if name.startswith("minidl.data"):
            assert all(each.startswith(known) for each in imported), name


def test_no_module_imports_itself_in_a_circle():
    graph, done = ours(), set[str]()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, f"a circle: {' -> '.join([*way[way.index(name) :], name])}"
        if name not in done:
            for each in sorted(graph[name]):
                visit(each, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def printed(program: str) -> str:
    """By `program`, in a Python of its own."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert not done.stderr
    return done.stdout


@pytest.mark.timeout(60)
def test_the_plain_loader_works_without_tracing_and_without_saved_states():
    """It imports neither, and asks no dataset for its state."""
    program = """
import sys
sys.modules["tracing"] = None  # importing it raises ImportError
import minidl
class Asking(minidl.Dataset):
    __getitem__, __len__ = (lambda _, key: key), (lambda _: 10)
    def state_dict(self):
        raise AssertionError
print(sum(int(batch.sum()) for batch in minidl.DataLoader(Asking(), batch_size=3, num_workers=2)))
assert not [name for name in sys.modules if name.startswith("minidl.stateful")]
assert "StatefulDataLoader" in dir(minidl)
assert minidl.StatefulDataLoader.__module__ == "minidl.stateful.loader"
"""
    assert printed(program) == "45\n"


@functools.cache
def torch_names() -> set[str]:
    """Every name that is defined or assigned in torch's loader, plus the dotted paths that comments may use."""
    root = Path(torch.utils.data.__file__).parent
    names = {"_utils/worker.py", "_utils/pin_memory.py", "_utils/signal_handling.py", "dataloader.py"}
    assert all((root / name).exists() for name in names)
    for path in [*root.glob("*.py"), *(root / "_utils").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Attribute, ast.alias)):
                names.add(node.attr if isinstance(node, ast.Attribute) else node.name)
            elif isinstance(node, ast.Name):
                names.add(node.id)
    return names


def exists(dotted: str) -> bool:
    """Whether `package.module.Class.attribute` can be reached."""
    parts = dotted.split(".")
    for i in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        for part in parts[i:]:
            found = getattr(found, part, None)
        return found is not None
    return False


REFERENCE = re.compile(r"torch: ((?:`?[\w./]+`?(?:, )?)+)")


def test_every_reference_to_torch_names_something_that_exists():
    known = torch_names()
    seen = 0
    for path in MODULES:
        for match in REFERENCE.finditer(path.read_text()):
            for reference in re.findall(r"[\w./]+", match.group(1)):
                if "_" in reference or "." in reference.strip("."):
                    seen += 1
                    assert reference in known or exists(reference.strip(".")), (path.name, reference)
    assert seen > 20


def test_functions_fit_a_screen_and_modules_a_sitting():
    for path in [*MODULES, *TRACING]:
        source = path.read_text()
        assert source.count("\n") <= 400, f"{path.relative_to(ROOT)} has {source.count(chr(10))} lines"
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and (body := node.body[ast.get_docstring(node) is not None :]):
                lines = (node.end_lineno or 0) - body[0].lineno + 1
                assert lines <= 45, (path.name, node.name, lines)


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank, nor comment, nor docstring."""
    source = path.read_text()
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.string.strip() and token.type is not tokenize.COMMENT:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


STATEFUL = [path for path in MODULES if path.parent.name == "stateful"]  # what only `state_dict()` needs
LAWS = ROOT / "minidl/laws.py"  # what a run is judged by: the loader does not use it
SIMULATED = [path for path in MODULES if "simulated" in path.parts]
WORLD = [path for path in MODULES if "world" in path.parts and path not in SIMULATED]
WHOLE_LOADER = [path for path in MODULES if path not in (*SIMULATED, *STATEFUL, LAWS)]


SIZES = {  # what a reader has to read, in lines of code: never raised
    "the loader": (
        WHOLE_LOADER,
        2622 + 2 * len(Kind),
    ),  # an event has two: in the table of kinds, and where it is emitted
    "minidl/stateful": (STATEFUL, 398),
    "minidl/laws.py": ([LAWS], 200),
    "minidl/world": (WORLD, 310),
    "minidl/world/simulated": (SIMULATED, 1241),
    "tracing": (TRACING, 10350),
    "notebooks": ([path for path in (ROOT / "notebooks").rglob("*.py") if "answers" not in path.parts], 3931),
}


@pytest.mark.parametrize("room", SIZES)
def test_it_is_compact(room):
    files, most = SIZES[room]
    size = sum(map(lines_of_code, files))
    assert size <= most, (
        f"{room}: {size - most} lines of code too many. For what comes, something goes: CONTRIBUTING.md"
    )


def test_loader_queues_and_transport_are_shorter_than_torchs():
    """Without the events and the world: torch emits nothing, and its loader calls the system itself. Of the queues that
    torch takes from multiprocessing, the pipes (connection.py) are left out: ours are in the world."""
    ours = [path for path in WHOLE_LOADER if path.name != "events.py" and "world" not in path.parts]
    root = Path(torch.utils.data.__file__).parent
    theirs = [root / name for name in ("dataloader.py", "dataset.py", "sampler.py", "distributed.py")]
    theirs += (root / "_utils").glob("*.py")
    theirs += Path(multiprocessing.queues.__file__), Path(torch.multiprocessing.queue.__file__)
    theirs += [Path(torch.multiprocessing.reductions.__file__)]
    assert sum(map(lines_of_code, ours)) < sum(map(lines_of_code, theirs))


@pytest.mark.timeout(60)
def test_importing_tracing_imports_no_room_of_it_before_it_is_used():
    program = "import sys, tracing; before = [name for name in sys.modules if name.startswith('tracing.')]; "
    program += "print(before, *(getattr(tracing, name).__name__ == name for name in tracing.__all__))"
    assert printed(program) == f"[] {' '.join(['True'] * len(tracing.__all__))}\n"


@pytest.mark.timeout(60)
def test_reading_traces_does_not_wait_for_torch():
    program = "import sys, tracing, tracing.__main__, tracing.views.live.live; print('torch' in sys.modules)"
    assert printed(program) == "False\n"


def test_the_public_names_are_torchs():
    """Apart from what is left out on purpose (DataPipes) and what only they need."""
    from minidl import public

    pipes = {
        name for name in torch.utils.data.__all__ if re.search("DataPipe|^DFI|^DataChunk|datapipe|_decorator", name)
    }
    only_theirs = {"argument_validation", "guaranteed_datapipes_determinism", "non_deterministic"}
    only_theirs |= {"runtime_validation", "runtime_validation_disabled"}
    assert set(torch.utils.data.__all__) - pipes - only_theirs == set(public.__all__)
    assert all(hasattr(minidl, name) and name in dir(minidl) for name in public.__all__)
