"""minidl beside other versions of torch and Python: the table of docs/versions.md. `make versions`, or

python -m docs.make.versions [VERSION]

For each cell, or those of this Python or this torch, it makes an environment (.venv-versions/, many GB each: removed
afterwards), installs that torch and the wheel of this checkout beside it, and runs docs/make/claims.py there,
away from the checkout. A Python that is not on this machine is reported, not passed over.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.make import claims
from docs.make.markers import between_markers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/versions.md"
CELLS = [
    ("3.10", "2.4.0"),
    ("3.11", "2.6.0"),
    ("3.12", "2.8.0"),
    ("3.13", "2.10.0"),
    ("3.13", "2.13.0"),
    ("3.14", "2.15.0"),
]


def main(only: str | None = None) -> int:
    page = PAGE.read_text(encoding="utf-8")
    rows = rows_of(page)
    with tempfile.TemporaryDirectory() as folder:
        wheel = make_wheel(Path(folder))
        for python, torch in CELLS:
            if only in (None, python, torch):
                print(f"== Python {python}, torch {torch}", flush=True)
                rows[python, torch] = run_cell(python, torch, wheel)
    PAGE.write_text(between_markers(page, table(rows), "versions"), encoding="utf-8")
    print(table(rows))
    return int(any("no" in row for row in rows.values()))


def make_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def find_python(version: str) -> str | None:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    places = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for place in filter(None, places):
        if subprocess.run([place, "-c", ""], capture_output=True).returncode == 0:  # pyenv's shims may fail
            return str(place)
    return None


def run_cell(version: str, torch: str, wheel: Path) -> list[str]:
    """The cells of a row: yes or no for each claim, or why there is none."""
    python = find_python(version)
    if python is None:
        return [f"no Python {version} on this machine"]
    home = ROOT / ".venv-versions" / f"{version}-{torch}"
    own = home / "bin" / "python"
    try:
        subprocess.run([python, "-m", "venv", "--clear", str(home)], check=True)
        wanted = [f"torch=={torch}", f"{wheel}[views]"]
        # -I: the checkout, if this runs in it, is not what is installed.
        subprocess.run([own, "-I", "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted], check=True)
        return answers(own)
    except subprocess.CalledProcessError as error:
        return [f"could not be installed (exit status {error.returncode})"]
    finally:
        shutil.rmtree(home, ignore_errors=True)


def answers(python: Path) -> list[str]:
    """Run the claims; "yes" or "no" for each, in the order of CLAIMS."""
    with tempfile.TemporaryDirectory() as folder:
        program = shutil.copy(claims.__file__, folder)
        env = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run([python, program], cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    return ["yes" if f"yes {claim}" in lines else "no" for claim in claims.CLAIMS]


def rows_of(page: str) -> dict[tuple[str, str], list[str]]:
    """The rows of the page's table, which may have been made on another machine."""
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in page.splitlines()]
    found = {tuple(cells[:2]): cells[2:] for cells in lines}
    return {cell: found.get(cell, ["not tried"]) for cell in CELLS}


def table(rows: dict[tuple[str, str], list[str]]) -> str:
    heads = ["Python", "torch", *claims.CLAIMS]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join([*cell, *row] + [''] * (len(claims.CLAIMS) - len(row)))} |" for cell, row in rows.items()]
    return f"Made by `make versions` on {platform.system()}, {platform.machine()}.\n\n" + "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
