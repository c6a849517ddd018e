"""`python -m fastsup profile`: runs a script as it is, with the profiler on, and says what the hooks have cost."""

from __future__ import annotations

import argparse
import builtins
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

from fastsup.profile.files import check_writable
from fastsup.profile.profiler import HookProfiler

__all__ = ["add_parser"]

_UNUSABLE = 2


def add_parser(commands: Any) -> None:
    """Adds the command to a parser of several.

    Args:
      commands: what `ArgumentParser.add_subparsers` has returned.
    """
    parser = commands.add_parser(
        "profile",
        help="run a script and say what its hooks cost",
        description="Runs a script and says what the hooks of its fastsup sessions and loops cost. Exits as it does.",
    )
    parser.add_argument("--table", action="store_true", help="print the table, also where a file is asked for")
    parser.add_argument("--json", metavar="F", help="write the profile as JSON")
    parser.add_argument("--csv", metavar="F", help="write the rows of the table as CSV")
    parser.add_argument("--trace", metavar="F", help="write a Chrome trace, which Perfetto opens, of a sample of steps")
    parser.add_argument("--html", metavar="F", help="write a page")
    parser.add_argument("--skip-steps", metavar="N", type=int, default=0, help="steps to leave out at the start")
    parser.add_argument("--step-markers", action="store_true", help="mark steps for TensorFlow's own profiler")
    parser.add_argument("script", help="the script to run")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(run=run, fail=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command.

    Args:
      arguments: what the parser has made of the command line.

    Returns:
      The exit code, where the script doesn't raise SystemExit or KeyboardInterrupt itself.
    """
    paths = {kind: getattr(arguments, kind) for kind in ("json", "csv", "trace", "html")}
    paths = {kind: path and os.path.abspath(path) for kind, path in paths.items() if path is not None}
    taken = {os.path.realpath(arguments.script): "the script"}
    for kind, path in paths.items():
        problem = _problem_with(path)
        if problem:
            arguments.fail(f"--{kind} {path} can't be written: {problem}")
        other = taken.setdefault(os.path.realpath(path), f"--{kind}")
        if other != f"--{kind}" and not path.startswith("/dev/"):
            arguments.fail(f"--{kind} {path} would overwrite what is there: that is {other}, too")
    if arguments.skip_steps < 0:
        arguments.fail(f"--skip-steps must not be negative, got {arguments.skip_steps}")
    try:
        with io.open_code(os.path.abspath(arguments.script)) as file:
            source = file.read()
    except OSError as error:
        arguments.fail(f"the script can't be read: {error}")
    profiler = HookProfiler(skip_steps=arguments.skip_steps, step_markers=arguments.step_markers)
    writers: dict[str, Callable[[str], None]] = {
        "json": profiler.write_json,
        "csv": profiler.write_csv,
        "trace": profiler.write_trace,
        "html": profiler.write_html,
    }
    code = 0
    try:
        profiler.start(gives_way=True)
        try:
            code = _run_script(arguments.script, arguments.args, source)
        finally:
            _wait_for_threads()
            profiler.stop()
    finally:
        # Also where the script leaves by an exit or a signal.
        failed = [_write(writers[kind], kind, path) for kind, path in paths.items()]
        if arguments.table or not paths:
            _print_table(profiler)
    return code or (_UNUSABLE if any(failed) else 0)


def _wait_for_threads() -> None:
    """Waits for the script's threads, as the interpreter does at its end: they may be the ones that train."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()


def _print_table(profiler: HookProfiler) -> None:
    try:
        sys.stdout.flush()
        profiler.print_table()
    except BrokenPipeError:
        # Whoever read it has read enough. So that the interpreter's last flush doesn't fail too:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except (OSError, ValueError) as error:
        print(f"python -m fastsup profile: the table could not be printed: {error}", file=sys.stderr)


def _problem_with(path: str) -> str:
    """Why a file can't be written, or nothing."""
    try:
        check_writable(path)
    except OSError as error:
        return str(error)
    return ""


def _write(write: Callable[[str], None], kind: str, path: str) -> bool:
    try:
        write(path)
    except OSError as error:
        print(f"python -m fastsup profile: --{kind} {path} could not be written: {error}", file=sys.stderr)
        return True
    print(f"Written: {path}", file=sys.stderr)
    return False


def _run_script(path: str, arguments: list[str], source: bytes) -> int:
    """Runs a script as `python path arguments` does. Returns 1 where an exception has ended it, which it has shown."""
    module = ModuleType("__main__")
    vars(module).update(__file__=path, __builtins__=builtins, __cached__=None)
    sys.argv[:] = [path, *arguments]
    # In place of the folder that `python -m` has put there.
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    sys.modules["__main__"] = module
    try:
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        # Its own traceback, by whatever shows tracebacks in it: without the frames of this file.
        shown = _without_ours(error.__traceback__)
        error.__traceback__ = shown
        try:
            sys.excepthook(type(error), error, shown)
        except Exception:
            traceback.print_exception(type(error), error, shown)
        return 1
    return 0


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
