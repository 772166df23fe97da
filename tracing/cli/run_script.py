"""`python -m tracing run`: any training script, unchanged, with all its loaders recorded.

The script runs in this process as `__main__`, as under `python script.py` or `python -m pkg.train`: it prints what it
would print, and exits as it would.

runpy only finds a module. It would also run it, but it drops the globals of what raises, SystemExit included, and so
iterators that should live until Python exits. Its frames would also be in the script's tracebacks.

    run_script(tracing.record("traces/train"), "train.py", ["--lr", "0.1"])
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import importlib.util
import io
import os
import shlex
import shutil
import sys
import types
import warnings
from collections.abc import Callable
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from runpy import _Error, _get_module_details  # type: ignore[attr-defined]  # as pdb's -m has it
from typing import NoReturn

import tracing
from tracing.cli.terminal_handover import TerminalHandover, flush
from tracing.ranks.ranks import Ranks
from tracing.recording.file_format import CTRL_C
from tracing.recording.loader_text import where_raised
from tracing.recording.own_files import say
from tracing.recording.record import record_children
from tracing.recording.system_calls import file_of
from tracing.recording.trace_directory import rank_of_this_process
from tracing.trace.words import command

INTERRUPTED = 130  # the exit status after Ctrl-C
HERE = Path(tracing.__file__).parent
OURS = (__file__, str(HERE / "recording" / "torch_loader"))  # their frames are left out of tracebacks


def run_script(
    recording: tracing.record,
    target: str,
    args: list[str],
    *,
    module: bool = False,
    live: bool = False,
    minidl: bool = False,
    tries: bool = False,
    ends: bool = False,
) -> int:
    """Run the script `target`, or the module of that name, with the arguments `args`, and record its loaders. Prints on
    stderr what was found. Returns the script's exit status.

    With `live` the live view has the terminal meanwhile; the script's output goes to `output.txt` beside the trace, and
    is shown when the view ends. With `minidl` the script gets minidl's DataLoader where it asks for torch's. With
    `tries` other settings of its loader are measured, too; then it goes on, or `ends`.

    Raises FileNotFoundError: there is no such script or module; FileExistsError: the recording's directory holds
    something else. Where nothing can be written, the script runs unrecorded.
    """
    must_exist(target, module)
    stderr = file_of(2)
    if not begin(recording):
        return execute(recording, target, args, module, minidl)
    pid, exits, steps = os.getpid(), os._exit, None
    if tries:
        from tracing import tuning

        steps = tuning.Steps(lambda steps: tuning.in_the_script(steps, recording, ends))
    # Ranks that were started separately share a terminal: none can have it, nor hold what the others print.
    terminal = TerminalHandover(recording.path) if live and (rank_of_this_process()["world_size"] or 1) == 1 else None
    try:
        if terminal is not None:
            terminal.start()
        record_children(recording)
        os._exit = functools.partial(leave, exits, pid, recording.path, stderr)
        status = execute(recording, target, args, module, minidl)
        if status == INTERRUPTED:
            recording.ended_by = recording.ended_by or CTRL_C
    finally:
        os._exit = exits
        if os.getpid() == pid:
            recording.stop()
            if terminal is not None:
                terminal.end()
    if os.getpid() == pid:  # else it is a child, forked by the script, and at its end
        gc.freeze()  # do not collect an iterator that the script left behind: torch would wait for its workers
        try:
            print_findings(recording, stderr, tried=steps is not None and steps.done)
            if steps is not None and not steps.done:
                say("tracing: nothing else was tried: it needs 100 steps, or an epoch of ten, in the main thread")
        finally:
            gc.unfreeze()
    return status


def leave(exits: Callable[[int], NoReturn], pid: int, trace: Path, stderr: bytes, status: int) -> NoReturn:
    """os._exit, for the script: its process does not come back to us, so it only says where the report is."""
    if os.getpid() == pid:
        words = f"the script left by os._exit. What it did until then: {tracer()} report {shlex.quote(shown(trace))}"
        say(f"tracing: {words}", stderr)
    exits(status)


def must_exist(target: str, module: bool) -> None:
    """The script or module: else FileNotFoundError. Errors inside the script are left to the script."""
    if not module and not os.path.isfile(target):
        raise FileNotFoundError(f"{target} is not a file: run takes a Python script, or with -m a module")
    if module and importlib.util.find_spec(target.partition(".")[0]) is None:
        raise FileNotFoundError(f"there is no module named {target.partition('.')[0]}")


def begin(recording: tracing.record) -> bool:
    """Start it. False if its directory cannot be written to (a full or read-only disk): that is one line on stderr, and
    must not keep the script from running."""
    wanted = recording.path
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it warns of is printed below
            recording.start()
    except FileExistsError:
        raise
    except OSError as error:
        print(f"tracing: not recorded, since {wanted} cannot be written to: {error}", file=sys.stderr, flush=True)
        return False
    if (used := recording.path) != wanted:
        words = f"tracing: another run is recording into {shown(wanted)}; this one goes to {shown(used)}"
        print(words, file=sys.stderr, flush=True)
    return True


# ---- the script


def execute(recording: tracing.record, target: str, args: list[str], module: bool, minidl: bool) -> int:
    """Run it to the end of its main thread; return its exit status. (Python waits for other threads when it exits. We
    do not: some wait for the main thread.)"""
    path, main = sys.path, types.ModuleType("__main__")
    try:
        if minidl:
            from tracing.cli.stand_in import minidl_stands_in  # imports torch, which not every script does

            minidl_stands_in()
        status = exit_status_of(lambda: run_as_main(main, target, args, module), recording)
    finally:
        sys.path = path  # what is imported from here on is ours; the rest stays: the script's atexit functions use it
    flush()
    return status


def run_as_main(main: types.ModuleType, target: str, args: list[str], module: bool) -> None:
    """Make `main` and sys what they are when the script runs alone. A spawned worker imports with them, too."""
    first = os.getcwd() if module else os.path.dirname(os.path.realpath(target))
    sys.path = [first, *sys.path[1:]]
    # Where tracing was found in the current folder, workers must find it too.
    if PathFinder.find_spec("tracing", sys.path) is None:
        sys.path.append(str(HERE.parent))
    sys.argv = [target, *args]
    if module:
        try:
            _, spec, code = _get_module_details(target, _Error)
        except _Error as error:
            sys.exit(f"{sys.executable}: {error}")
        main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
        main.__file__ = sys.argv[0] = spec.origin or ""
    else:
        main.__file__ = path = os.path.abspath(target)
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        main.__loader__ = SourceFileLoader("__main__", path)
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


# ---- how it ends


def exit_status_of(run: Callable[[], None], recording: tracing.record) -> int:
    """What Python would exit with after `run`. Prints what Python would print, and notes the error."""
    try:
        run()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        with contextlib.suppress(KeyboardInterrupt):  # a second one: coreutils' timeout, say, sends two
            forget_our_frames(error)
            recording.ended_by = where_raised(error)
            sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def forget_our_frames(error: BaseException | None) -> None:
    """Remove tracing's frames from the tracebacks of an exception and of what led to it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        BaseException.with_traceback(error, without_ours(error.__traceback__))
        error = error.__cause__ or error.__context__


def without_ours(traceback: types.TracebackType | None) -> types.TracebackType | None:
    rest, every = None, list[types.TracebackType]()
    while traceback is not None:
        every.append(traceback)
        traceback = traceback.tb_next
    for each in reversed(every):
        if not each.tb_frame.f_code.co_filename.startswith(OURS):
            each.tb_next, rest = rest, each
    return rest


def print_findings(recording: tracing.record, stderr: bytes, tried: bool) -> None:
    """Where the trace is, what it shows, how to look further: on stderr, since stdout is the script's. Where settings
    were `tried`, their table has said what helps: the trace of what came before would give advice beside it."""
    try:
        path, lines = shown(recording.path), list[str]()
        ranks = Ranks(recording.path)
        trace = ranks.all[0].trace
        if recording.failure is not None:
            lines += [f"not all of the run is in {path}, which could not be written to: {recording.failure}"]
        elif not trace.loaders:
            # (A child that cannot be recorded cannot say so: it never runs a line of ours.)
            until = f", until it ended with {recording.ended_by}" * bool(recording.ended_by)
            lines += [f"no DataLoader was iterated in this process or its children{until}: nothing is in {path}"]
        elif len(ranks.all) > 1:
            lines += [f"{len(ranks.all)} processes in {path}: {', '.join(each.name for each in ranks.all)}"]
        else:
            loaders = len({each.loader for each in trace.loaders})
            lines += [f"{len(trace):,} events of {loaders} loader{'s' * (loaders != 1)} in {path}"]
        if trace.loaders:
            more, typed = [] if tried else tracing.report(ranks).first_lines(), shlex.quote(path)
            more += [f"look further: {command()} report {typed}"]
            more += [f"              {command()} timeline {typed} -o timeline.svg"]
            lines += [each.replace(command(), tracer()) for each in more]
    except (Exception, KeyboardInterrupt) as error:  # whatever is wrong with the trace, the script has ended
        lines = [f"recorded into {recording.path}, but there is no report: {error!r}"]
    say("\n".join(line.rstrip() for line in [f"tracing: {lines[0]}", *lines[1:]]), stderr)


def shown(path: Path) -> str:
    """A path, shortened for typing."""
    with contextlib.suppress(OSError):  # the current folder is gone
        return os.path.relpath(path) if path.absolute().is_relative_to(Path.cwd()) else str(path)
    return str(path)


def tracer() -> str:
    """How to call it, as short as it can be typed: `make demo` makes an environment and activates none."""
    found = shutil.which("python") == sys.executable
    return command() if found else command().replace("python ", f"{shown(Path(sys.executable))} ", 1)
