"""Run the notebooks and save their outputs: `make notebooks`, or

    python -m notebooks.build [--jobs 2] [NAME ...]        NAME: 01, or notebooks/01-a-batchs-journey.ipynb

Each is executed from top to bottom in its own folder, by a kernel of this Python, and written back with its outputs and
nothing that differs from run to run: no execution times, no random cell ids.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

from notebooks.predict import BUILDS, PLAIN, REFUSED

COMMAND = "python -m notebooks.build"
FOLDER = Path(__file__).parent
LIMIT = 120  # seconds per cell; none takes long, but the machine may be busy


def notebooks(names: list[str] | None = None) -> list[Path]:
    """Those that begin with one of the names; without names, all of them. ValueError: there is no such notebook."""
    there = sorted(FOLDER.glob("[0-9][0-9]-*.ipynb"))
    if not names:
        return there
    found = []
    for name in names:
        matching = [path for path in there if path.name.startswith(Path(name).name)]
        if not matching:
            raise ValueError(f"no notebook's name begins with {name!r}: there are {', '.join(p.stem for p in there)}")
        found += matching
    return found


def executed(path: Path) -> Any:
    """The notebook with its new outputs. CellExecutionError: a cell raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="nb-") as folder:
        client, start = prepared(notebook, folder)
        client.execute(**start)
    return steady(notebook)


def prepared(notebook: Any, folder: str) -> tuple[NotebookClient, dict[str, Any]]:
    """What executes it, and how its kernel is to be started; the kernel has its own files in this folder."""
    # Sockets that are files, not ports: no other user can listen in, and ipykernel has nothing to warn about. An empty
    # profile: what your own IPython runs at its start does not belong in these notebooks.
    config = Config(KernelManager={"transport": "ipc", "ip": str(Path(folder, "kernel"))})
    memory = {"PYTHONMALLOC": "", "GLIBC_TUNABLES": ""}  # in pages of the usual size, unlike that of `make test`
    environment = {**os.environ, **memory, "PYTHONPATH": str(FOLDER.parent), "IPYTHONDIR": folder, PLAIN: "1"}
    client = NotebookClient(
        notebook, config=config, timeout=LIMIT, kernel_name="python3", coalesce_streams=True, record_timing=False
    )
    return client, {"cwd": str(FOLDER), "env": environment}


def steady(notebook: Any) -> Any:
    """Without what would differ in another run, or on another machine."""
    for number, cell in enumerate(notebook.cells, start=1):
        cell["id"] = f"cell-{number:02}"
        cell["metadata"] = {}
        if isinstance(cell["source"], list):
            cell["source"] = "".join(cell["source"])
    name = notebook.metadata.get("kernelspec", {}).get("display_name", "Python 3 (ipykernel)")
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": name, "language": "python", "name": "python3"},
            "language_info": {"name": "python", "file_extension": ".py"},
        }
    )
    nbformat.validate(notebook)
    return notebook


def build(path: Path) -> float:
    """Execute it and write it back; returns how many seconds that took."""
    begin = time.perf_counter()
    notebook = executed(path)
    path.write_text(nbformat.writes(notebook, version=4) + "\n", encoding="utf-8")
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Execute the notebooks and write them back.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these: for example 01 or 07")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="notebooks at a time (%(default)s)")
    arguments = parser.parse_args()
    try:
        paths = notebooks(arguments.names)
    except ValueError as error:
        parser.error(str(error))
    os.environ[BUILDS] = "1"
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:  # the work is done by the kernels
        futures = {pool.submit(build, path): path for path in paths}
        for future in concurrent.futures.as_completed(futures):
            name = futures[future].name
            try:
                print(f"{name}: {future.result():.0f} s", flush=True)
            except CellExecutionError as error:
                failed += 1
                print(f"{name}: {error.evalue if REFUSED in error.evalue else error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
