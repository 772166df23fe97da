"""The wheel and the source distribution, each tried as a user would: `make dist`, or

python -m docs.make.dist

Both are built into dist/, and their metadata are checked. Then each is installed into a new environment outside of the
checkout (torch is a large download), where the demo runs, a script of torch's loader under the tracer, the course is
copied and its exercises are listed, and a type checker reads a program that uses minidl.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    for (batch,) in DataLoader(TensorDataset(torch.arange(64.0)), batch_size=4, num_workers=2):
        batch.sum()
"""
TYPED = """
from typing_extensions import assert_type

import minidl
import tracing

assert_type(minidl.DataLoader(range(4)).num_workers, int)
assert_type(tracing.load("run"), tracing.Trace)
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        for package in build(Path(folder, "tools")):
            try_out(package, Path(folder, package.name))
    return 0


def build(tools: Path) -> list[Path]:
    """The wheel and the source distribution, in dist/."""
    python = environment(tools, "build", "twine")
    shutil.rmtree(DIST, ignore_errors=True)
    run("building", python, "-m", "build", "--outdir", DIST, ROOT)
    packages = sorted(DIST.iterdir())
    run("checking the metadata", python, "-m", "twine", "check", "--strict", *packages)
    return packages


def try_out(package: Path, home: Path) -> None:
    python = environment(home, f"{package}[views]", "mypy")
    minidl, train, typed = home / "bin" / "minidl", home / "train.py", home / "typed.py"
    train.write_text(SCRIPT)
    typed.write_text(TYPED)
    run("the demo", minidl, "demo", "--no-live", "-o", "demo", cwd=home)
    run("a script under the tracer", minidl, "run", "-o", "run", train, cwd=home)
    run("the course", minidl, "course", "course", cwd=home)
    run("its exercises", python, "-m", "notebooks.exercises", "list", cwd=home / "course")
    run("its types", python, "-m", "mypy", "--strict", typed, cwd=home)


def environment(home: Path, *packages: str) -> Path:
    """Its Python."""
    print(f"== a new environment: {', '.join(Path(package).name for package in packages)}", flush=True)
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
    return python


def run(what: str, *command: str | Path, cwd: Path = ROOT) -> None:
    print(f"== {what}", flush=True)
    subprocess.run(command, cwd=cwd, check=True)


if __name__ == "__main__":
    sys.exit(main())
