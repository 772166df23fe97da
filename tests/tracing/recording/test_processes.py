"""Every process of a program that iterates a loader is recorded, each into a part of one trace."""

from __future__ import annotations

import _posixsubprocess
import json
import os
import pickle
import shutil
import site
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tracing
from minidl.events import Kind
from tests.tracing.cli.terminal import ROOT
from tests.tracing.forked import forked
from tracing.recording import file_format as fmt
from tracing.recording.unseen_children import IN_CHILDREN, RUN, amended, hiding_flag, python_path, watch_for
from tracing.trace.parts import Part, parts
from tracing.trace.trace import Trace

pytestmark = [pytest.mark.timeout(110), pytest.mark.skipif(sys.platform == "win32", reason="it forks")]

# What the programs load by. Importing torch takes each process seconds, and so does a report on batches: where it only
# matters that a process which loads is seen, it emits how an epoch of minidl's loader begins, and imports no torch.
TRACED = ("-m", "tracing", "run", "-o", "trace")
LOAD = """
    import multiprocessing, os, subprocess, sys

    def load(samples, workers=1):
        from torch.utils.data import DataLoader
        for _ in DataLoader(range(samples), 1, num_workers=workers):
            pass

    def spawned(rank, samples):
        load(samples)

    def emit(size):
        from minidl.events import Kind, emit
        emit(Kind.LOADER, 1 << 32, text={"dataset": "range", "dataset_size": size, "num_workers": 0})
        emit(Kind.EPOCH_BEGIN, 1 << 32, value=-1)
"""
CHILD = 'import sys; sys.path.insert(0, "."); import loading; loading.{}'
IN_PROCESS = "p = multiprocessing.get_context('{}').Process(target={}, args=({},)); p.start(); p.join()"
LOADS = CHILD.format("load(9)")
EMITS = CHILD.format("emit(10)")
# How a process is started; the size of the first dataset that it loads, by which its part is known; how many batches.
PROGRAMS = {
    ("mp.spawn", 3, 3): "torch.multiprocessing.spawn(spawned, (3,), nprocs=1)",
    ("fork", 4, 4): IN_PROCESS.format("fork", "load", 4),
    ("forkserver", 5, 0): IN_PROCESS.format("forkserver", "emit", 5),
    ("pool of processes", 2, 6): """
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            list(pool.map(load, [2, 4]))
    """,
    ("os.fork, os._exit", 7, 7): """
        if (pid := os.fork()) == 0:
            load(7)
            os._exit(0)
        os.waitpid(pid, 0)
    """,
    ("minidl in a subprocess", 8, 8): """
        code = "import minidl\\nfor _ in minidl.DataLoader(range(8), 1): pass"
        subprocess.run([sys.executable, "-c", code], check=True)
    """,
    ("shell", 9, 9): f"subprocess.run(['sh', '-c', sys.executable + ' -c ' + repr({LOADS!r})], check=True)",
    ("os.execv", 10, 0): f"os.fork() or os.execv(sys.executable, [sys.executable, '-c', {EMITS!r}]); os.wait()",
}


def write(folder: Path, text: str) -> Path:
    (folder / "loading.py").write_text(textwrap.dedent(LOAD))
    program = "from loading import *\nif __name__ == '__main__':\n" + textwrap.indent(textwrap.dedent(text), "    ")
    (folder / "train.py").write_text(program)
    return folder / "train.py"


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in `folder`; it must succeed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done


def yielded(part: Part) -> int:
    trace = tracing.load(part.path, strict=True)
    assert tracing.check(trace) == []
    assert len({loader.loader for loader in trace.loaders}) >= 1
    assert sum(actor.role == "main" for actor in trace.actors) == 1
    return int((trace.events["kind"] == Kind.YIELDED).sum())


def size_of(part: Part) -> int:
    """Of the first dataset that it loaded."""
    assert yielded(part) >= 0
    return int(tracing.load(part.path).config(0)["dataset_size"])


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A program that starts a process in each of these ways: its trace, and its standard error."""
    folder = tmp_path_factory.mktemp("family")
    begin = "import torch.utils.data, torch.multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\n"
    write(folder, begin + "\n".join(textwrap.dedent(text) for text in PROGRAMS.values()))
    return folder / "trace", run(folder, *TRACED, "train.py").stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "batches"), PROGRAMS)
def test_a_child_that_loads_is_a_part(name: str, size: int, batches: int, family: tuple[Path, str]) -> None:
    directory, _ = family
    root = fmt.description(directory)
    (part,) = (part for part in parts(directory) if size_of(part) == size)
    assert yielded(part) == batches
    assert part.path.parent == directory / "parts" and part.path.name == str(part.about["pid"])
    assert part.about["pid"] != root["pid"] and part.about["host"] == root["host"] and part.rank is None
    assert part.about["parent"] == root["pid"] or name in ("forkserver", "shell")
    assert (part.about["stopped"] is None) == (name == "os.fork, os._exit")


@pytest.mark.slow
def test_a_program_that_leaves_all_loading_to_children_is_no_part_itself(family: tuple[Path, str]) -> None:
    directory, errors = family
    assert len(parts(directory)) == len(PROGRAMS) and len(Trace(directory)) == 0
    assert f"{len(PROGRAMS)} processes in trace" in errors and "Verdict" in errors and "no DataLoader" not in errors


FORKS_WHILE_LOADING = """
    from torch.utils.data import DataLoader
    iterator = iter(DataLoader(range(9), 3, num_workers=1))
    next(iterator)
    if (pid := os.fork()) == 0:
        load(5, workers=0)
        load(4)
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(iterator)) == 2
"""


@pytest.mark.parametrize("how", ["run", "record"])
def test_a_child_forked_in_the_middle_of_an_epoch_is_not_mixed_with_its_parent(how: str, tmp_path: Path) -> None:
    if how == "run":
        write(tmp_path, FORKS_WHILE_LOADING)
        forked(tmp_path, *TRACED, "train.py")
    else:
        record = "import tracing\nfrom tracing.recording.torch_loader.attach import everything\n"
        body = textwrap.indent(textwrap.dedent(FORKS_WHILE_LOADING), "    ")
        write(tmp_path, f"{record}with everything(), tracing.record('trace'):\n{body}")
        forked(tmp_path, "train.py")
    found = parts(tmp_path / "trace")
    assert [yielded(part) for part in found] == [3, 9]
    assert found[0].path == tmp_path / "trace"
    assert [len(fmt.events_files(part.path)) for part in found] == [2, 2], "a process that loads, and its worker"


NESTED = """
    from torch.utils.data import DataLoader
    class Inner:
        def __len__(self): return 3
        def __getitem__(self, key): return len(list(DataLoader(range(4), 2)))
    assert [int(x) for x in DataLoader(Inner(), 1, num_workers=2, multiprocessing_context="fork")] == [2, 2, 2]
"""


def test_a_loader_nested_in_a_worker_stays_in_its_mains_trace(tmp_path: Path) -> None:
    write(tmp_path, NESTED)
    forked(tmp_path, *TRACED, "train.py")
    assert [part.path for part in parts(tmp_path / "trace")] == [tmp_path / "trace"]
    assert len(tracing.load(tmp_path / "trace").loaders) == 4


# ---- what a child pays, and what it keeps


def test_a_child_that_loads_nothing_imports_nothing(tmp_path: Path) -> None:
    """Its modules are those that it has without the tracer, and a user's own sitecustomize runs."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("MINE = 'runs'")
    child = "import sys; print(sorted(sys.modules), sys.path[1:], sys.modules['sitecustomize'].MINE)"
    write(tmp_path, f"subprocess.run([sys.executable, '-c', {child!r}], check=True)")
    path = os.pathsep.join([str(ROOT), str(tmp_path / "site")])
    alone = run(tmp_path, "train.py", PYTHONPATH=path)
    traced = run(tmp_path, *TRACED, "train.py", PYTHONPATH=path)
    assert traced.stdout == alone.stdout and "runs" in alone.stdout
    assert "no DataLoader was iterated" in traced.stderr
    assert not (tmp_path / "trace" / "parts").exists()


def test_without_a_sitecustomize_of_the_users_none_is_missed(tmp_path: Path) -> None:
    child = "import sys; print(getattr(sys.modules.get('sitecustomize'), '__file__', None))"
    write(tmp_path, f"subprocess.run([sys.executable, '-c', {child!r}], check=True)")
    assert run(tmp_path, *TRACED, "train.py").stderr.startswith("tracing: no DataLoader")


# ---- ranks that no torchrun starts (those that it does: test_torchrun.py)


def test_two_launches_at_once_have_a_trace_each(tmp_path: Path) -> None:
    """The first holds its trace until the second has ended."""
    write(tmp_path, "print(os.environ['RANK'], flush=True); emit(4); sys.stdin.read()")
    shell = (
        "for rank in 0 1; do RANK=$rank WORLD_SIZE=2 MASTER_PORT=$1 $0 -m tracing run -o trace train.py & done; wait"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    def launch(port: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", f"exec 3<&0; {shell.replace('train.py &', 'train.py <&3 &')}", sys.executable, str(port)],
            cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    first = launch(1)
    assert first.stdout is not None
    assert {first.stdout.readline(), first.stdout.readline()} == {"0\n", "1\n"}
    second = launch(2)
    _, errors = second.communicate("", timeout=60)
    assert second.returncode == 0 and errors.count("this one goes to trace-2") == 2
    assert first.communicate("", timeout=60)[1].count("Verdict") == errors.count("Verdict") == 1
    for directory in ("trace", "trace-2"):
        assert [(part.rank, size_of(part)) for part in parts(tmp_path / directory)] == [(0, 4), (1, 4)]


# ---- what is never touched


def test_only_the_runs_own_parts_are_replaced(tmp_path: Path) -> None:
    write(tmp_path, IN_PROCESS.format("fork", "load", 5))
    assert "Verdict" in forked(tmp_path, *TRACED, "train.py")[1]
    (old,) = parts(tmp_path / "trace")
    mine = tmp_path / "trace" / "parts" / "kept"
    with tracing.record(mine):
        pass
    (old.path / "notes.txt").write_text("precious")
    forked(tmp_path, *TRACED, "train.py")
    assert tracing.load(mine).path == mine
    assert [path.name for path in old.path.iterdir()] == ["notes.txt"]
    assert [yielded(part) for part in parts(tmp_path / "trace")] == [5]


def test_a_trace_that_a_child_still_records_into_is_left_alone(tmp_path: Path) -> None:
    """The process that was run has ended; what it started has not."""
    child = "import sys, loading; loading.emit(5); print(flush=True); sys.stdin.readline()"
    started = f"subprocess.Popen([sys.executable, '-c', {child!r}], stdin=0, stdout=subprocess.PIPE)"
    write(tmp_path, f"p = {started}; p.stdout.readline()  # by then it has loaded")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    command = [sys.executable, *TRACED, "train.py"]
    first = subprocess.Popen(command, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert first.wait(60) == 0
        with pytest.warns(UserWarning, match="is being recorded into"), tracing.record(tmp_path / "trace") as other:
            assert other.path == tmp_path / "trace-2"
        assert [size_of(part) for part in parts(tmp_path / "trace")] == [5]
    finally:
        first.communicate("\n", timeout=60)


def test_what_another_machine_records_into_is_left_alone(tmp_path: Path) -> None:
    """On a disk that several hosts share."""
    with tracing.record(tmp_path / "trace"):
        pass
    about = fmt.description(tmp_path / "trace") | {"machine": "another", "stopped": None}
    (tmp_path / "trace" / fmt.DESCRIPTION).write_text(json.dumps(about))
    with pytest.warns(UserWarning, match="is being recorded into"), tracing.record(tmp_path / "trace"):
        pass


# ---- children that Python's flags or an environment of their own keep from us

OWN = "{'PATH': '/nowhere', 'PYTHONPATH': PACKAGES}"
REPLACED = "{**os.environ, 'PYTHONPATH': PACKAGES}"
SEEN_ANYWAY = f"""
    code = {EMITS!r}
    subprocess.run([sys.executable, '-c', code], env={REPLACED}, check=True)
    subprocess.run(['sh', '-c', sys.executable + ' -c ' + repr(code)], env={REPLACED}, check=True)
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, '-c', code], {REPLACED}), 0)
    os.environ['PYTHONPATH'] = PACKAGES
    os.fork() or os.execv(sys.executable, [sys.executable, '-c', code])
    os.wait()
    os.system(sys.executable + ' -c ' + repr(code))
    os.environ['PYTHONPATH'] = os.pathsep.join(['own', PACKAGES, BEFORE])
    subprocess.run([sys.executable, '-c', code], check=True)
"""


def write_with_nil(folder: Path, text: str) -> None:
    """The program; and nil.py and nil, which print one line."""
    train = write(folder, text)
    begin = f"import os\nPACKAGES, BEFORE = {str(ROOT)!r}, os.environ['PYTHONPATH']\n"
    train.write_text(begin + train.read_text())
    (folder / "nil.py").write_text("print('ran', flush=True)")
    (folder / "nil").write_text(f"#!{sys.executable}\nprint('ran', flush=True)")
    (folder / "alone").write_text(f"#!/usr/bin/env -S {sys.executable} -sI\nprint('ran', flush=True)")
    for name in ("nil", "alone"):
        (folder / name).chmod(0o755)
    (folder / "own").mkdir()
    (folder / "own" / "sitecustomize.py").write_text("print('customised')")


def test_children_with_another_pythonpath_are_parts(tmp_path: Path) -> None:
    """And so is what starts their samplers of memory, which no flag hides: it loads nothing."""
    write_with_nil(tmp_path, SEEN_ANYWAY)
    done = run(tmp_path, "-m", "tracing", "run", "--memory", "-o", "trace", "train.py")
    assert [size_of(part) for part in parts(tmp_path / "trace")] == [10] * 6, done.stderr
    assert done.stdout == "customised\n"
    assert tracing.load(tmp_path / "trace").lacks == []


@pytest.mark.parametrize(("flag", "method"), [("-E", "spawn"), ("-I", "forkserver"), ("-S", "spawn")])
def test_what_multiprocessing_starts_is_a_part_whatever_pythons_flags(flag: str, method: str, tmp_path: Path) -> None:
    """It passes them on to its children. (Without its site-packages Python must be told where they are.)"""
    train = write(tmp_path, IN_PROCESS.format(method, "emit", 5))
    code = f"""
        import sys
        sys.path[:0] = {[str(ROOT), str(tmp_path), *site.getsitepackages()]!r}
        import tracing.__main__
        sys.exit(tracing.__main__.main(["run", "-o", "trace", {str(train)!r}]))
    """
    (tmp_path / "start.py").write_text(textwrap.dedent(code))
    done = run(tmp_path, flag, "start.py")
    assert [size_of(part) for part in parts(tmp_path / "trace")] == [5], done.stderr
    assert tracing.load(tmp_path / "trace").lacks == []


LOADS_AND_STARTS = "import loading as x, minidl.events; x.os.system(x.sys.executable + ' -I nil.py')"
UNSEEN = {  # program -> how the report names it
    "by flags": {
        "subprocess.run([sys.executable, '-W', 'ignore', '-sE', 'nil.py'])": "-sE nil.py`) was started with -E",
        "subprocess.run(f'cd . && {sys.executable} -I nil.py', shell=True)": " -I nil.py`) was started with -I",
        "os.waitpid(os.posix_spawn(sys.executable, ['x', '-S', 'nil.py'], os.environ), 0)": " -S nil.py`) was started",
        "os.fork() or os.execl(sys.executable, 'python', '-BI', 'nil.py'); os.wait()": "-BI nil.py`) was started",
    },
    "by an environment": {
        f"subprocess.run([sys.executable, 'nil.py'], env={OWN})": " nil.py`) was started with an environment",
        "os.system('PYTHONPATH=. ' + sys.executable + ' nil.py x')": " nil.py x`) was started with an environment",
        f"subprocess.run(['./nil'], env={OWN})": "A child (`nil`) was started with an environment of its own",
        f"subprocess.run([sys.executable, '-c', {LOADS_AND_STARTS!r}])": " -I nil.py`) was started with -I",
    },
    "by what runs it": {
        "subprocess.run(['timeout', '60', sys.executable, '-E', 'nil.py'])": " -E nil.py`) was started with -E",
        "subprocess.run(['./alone', 'x'])": "A child (`alone x`) was started with -I",
        "subprocess.run(f'env -i {sys.executable} nil.py', shell=True)": " nil.py`) was started with an environment",
        "os.system('export PYTHONPATH=$(pwd); ' + sys.executable + ' nil.py x')": " nil.py x`) was started with an env",
    },
}  # fmt: skip


@pytest.mark.parametrize("how", UNSEEN)
def test_children_that_cannot_be_seen_are_named(how: str, tmp_path: Path) -> None:
    write_with_nil(tmp_path, "\n".join([*UNSEEN[how], "emit(3)"]))
    done = run(tmp_path, *TRACED, "train.py")
    assert done.stdout == "ran\n" * 4
    lacks = tracing.load(tmp_path / "trace").lacks
    report = " ".join(str(tracing.report(tracing.load(tmp_path / "trace"))).split())
    for sentence, words in zip(lacks, UNSEEN[how].values(), strict=True):
        assert words in sentence and sentence in report


def test_what_did_not_start_or_was_only_asked_its_version_is_not_named(tmp_path: Path) -> None:
    asked = """
        subprocess.run([sys.executable, "-V"], env={})
        for start in (lambda: subprocess.run(["not-here/python", "-E"]), lambda: os.execv("python", ["python", "-E"])):
            try:
                start()
            except FileNotFoundError:
                pass
        emit(3)
    """
    write(tmp_path, asked)
    run(tmp_path, *TRACED, "train.py")
    assert tracing.load(tmp_path / "trace").lacks == []


def test_a_child_that_was_not_seen_is_not_said_to_be_one_ranks(tmp_path: Path) -> None:
    """A report of several processes names it above them all, and keeps the verdict of each."""
    write(
        tmp_path,
        f"for n in '12': subprocess.run([sys.executable, '-c', {EMITS!r}])\nos.system('python3 -I -c 0')",
    )
    run(tmp_path, *TRACED, "train.py")
    text, _ = forked(tmp_path, "-m", "tracing", "report", "trace")
    assert text.startswith("Note: A child (`python3 -I -c 0`) was started with -I") and text.count("A child") == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("PYTHONPATH=$PWD python x", "python x"), ("PYTHONPATH=a:${PYTHONPATH} python x", None),
        ("A=$(python -V):b PYTHONPATH=$(pwd):$PYTHONPATH python x", None), ("B=$(python -E b) make", "python -E b"),
        ("unset A PYTHONPATH; python x", "python x"), ("python x PYTHONPATH=y", None), ("python \\\n -E", "python -E"),
        ("for n in 1; do python -E x; done", "python -E x"), ("/usr/bin/env -u PYTHONPATH A=b python x", "python x"),
        ("nice -n 5 python x -E", None), ("echo python -E", None), ("python -E x <<E\nit's\nE", "python -E x"),
    ],
)  # fmt: skip
def test_a_shells_commands_are_read_as_it_reads_them(text: str, named: str | None) -> None:
    finds_us = {**os.environ, RUN: "[]", "PYTHONPATH": IN_CHILDREN}
    for shell in (["sh", "-c"], ["bash", "-euo", "pipefail", "-lc"]):
        noted: list[str] = []
        amended([shutil.which(shell[0])], [*shell, text], finds_us, lambda words, _: noted.append(" ".join(words)))  # noqa: B023
        assert noted == [named] * (named is not None)


def test_a_trace_without_loaders_names_the_children_that_may_have_had_some(tmp_path: Path) -> None:
    write(tmp_path, "for n in range(20): subprocess.run([sys.executable, '-I', '-c', f'print({n})'], check=True)")
    done = run(tmp_path, *TRACED, "train.py")
    assert done.stdout.split() == [str(n) for n in range(20)]
    assert "trace is empty. A child (" in done.stderr and done.stderr.count("was started with -I") == 4
    assert "More children were started in such a way" in done.stderr


def test_what_starts_processes_is_as_before_once_a_run_has_ended(tmp_path: Path) -> None:
    def started_by() -> tuple[object, ...]:
        return os.execv, os.system, os.posix_spawn, _posixsubprocess.fork_exec

    before = started_by()
    end = watch_for(tmp_path)
    try:
        assert pickle.loads(pickle.dumps(os.system)) is os.system not in before
        assert os.waitstatus_to_exitcode(os.system(command="exit 3")) == 3
        if (pid := os.fork()) == 0:
            os.execve(path=b"/bin/sh", argv=["sh", "-c", "exit 4"], env=os.environ)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
        with pytest.raises(FileNotFoundError, match="not here"):
            subprocess.run([tmp_path / "not here"], check=True)
        assert (
            subprocess.run([b"echo", b"\xff"], env={b"PATH": os.environ["PATH"]}, capture_output=True).stdout
            == b"\xff\n"
        )
    finally:
        end()
    assert before == started_by()


def test_a_childs_pythonpath_is_ours_and_then_the_programs() -> None:
    for others, path in {
        None: "",
        "a": ":a",
        "a:": ":a:",
        f"a:{IN_CHILDREN}": ":a:",
        f"a:{IN_CHILDREN}:b": ":a:b",
    }.items():
        assert python_path(others) == IN_CHILDREN + path


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("python -E x.py", "-E"), ("python -W ignore -I x.py", "-I"), ("python -Wignore -X dev -bS x.py", "-S"),
        ("python x.py -E", None), ("python -c print() -E", None), ("python -m x -E", None), ("python - -E", None),
        ("python -um x -I", None), ("python -Xfrozen_modules=off -u x.py -S", None), ("python", None),
    ],
)  # fmt: skip
def test_flags_are_read_as_python_reads_them(words: str, flag: str | None) -> None:
    assert hiding_flag(words.split()) == flag
