"""`python -m fastsup profile`: runs a script as it is, with the profiler on, and says what the hooks have cost."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from fastsup.core.files import check_writable
from fastsup.legacy.script import ScriptFile, ScriptModule, run_script
from fastsup.profile.compare import compare, load
from fastsup.profile.export import as_dict
from fastsup.profile.profiler import HookProfiler
from fastsup.profile.program import Program
from fastsup.profile.table import Line, lines_of, print_lines

__all__ = ["add_parser", "print_at_the_end", "run_profiled"]

_UNUSABLE = 2


def add_parser(commands: Any) -> None:
    """Adds the command to a parser of several.

    Args:
      commands: what `ArgumentParser.add_subparsers` has returned.
    """
    parser = commands.add_parser(
        "profile",
        help="run a script and say what its hooks cost",
        usage="%(prog)s [options] script [argument ...]",
        # Else it would take what stands among the script's arguments for short forms of its own.
        allow_abbrev=False,
        description="Runs a script and says what the hooks of its fastsup sessions and loops cost. Exits as it does.",
    )
    parser.add_argument("--table", action="store_true", help="print the table, also where a file is asked for")
    parser.add_argument("--json", metavar="F", help="write the profile as JSON")
    parser.add_argument("--csv", metavar="F", help="write the rows of the table as CSV")
    parser.add_argument("--trace", metavar="F", help="write a Chrome trace, which Perfetto opens, of a sample of steps")
    parser.add_argument("--html", metavar="F", help="write a page")
    parser.add_argument(
        "--compare", metavar="F", help="say what is faster or slower than in F, which --json has written before"
    )
    parser.add_argument("--skip-steps", metavar="N", type=int, default=0, help="steps to leave out at the start")
    parser.add_argument("--step-markers", action="store_true", help="mark steps for TensorFlow's own profiler")
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="the script is a module's name, as for python -m"
    )
    # All of it as it is: the script may have a "--" of its own among its arguments.
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the script to run, and its arguments")
    parser.set_defaults(run=run, fail=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command.

    Args:
      arguments: what the parser has made of the command line.

    Returns:
      The exit code, where the script doesn't raise SystemExit or KeyboardInterrupt itself.
    """
    command = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    if not command:
        arguments.fail("the following arguments are required: script")
    try:
        before = None if arguments.compare is None else load(arguments.compare)
    except (OSError, ValueError) as error:
        arguments.fail(f"--compare {arguments.compare} can't be used: {error}")
    try:
        script = (ScriptModule if arguments.is_module else ScriptFile)(command[0])
    except (OSError, ImportError) as error:
        arguments.fail(f"the script can't be read: {error}")
    paths = {kind: getattr(arguments, kind) for kind in ("json", "csv", "trace", "html")}
    paths = {kind: path and os.path.abspath(path) for kind, path in paths.items() if path is not None}
    taken = {os.path.realpath(script.path): "the script"}
    for kind, path in paths.items():
        problem = _problem_with(path)
        if problem:
            arguments.fail(f"--{kind} {path} can't be written: {problem}")
        other = taken.setdefault(os.path.realpath(path), f"--{kind}")
        if other != f"--{kind}" and not path.startswith("/dev/"):
            arguments.fail(f"--{kind} {path} would overwrite what is there: that is {other}, too")
    try:
        profiler = HookProfiler(skip_steps=arguments.skip_steps, step_markers=arguments.step_markers)
    except (ValueError, ImportError) as error:
        arguments.fail(str(error).replace("skip_steps", "--skip-steps").replace("step_markers", "--step-markers"))
    writers: dict[str, Callable[[str], None]] = {
        "json": profiler.write_json,
        "csv": profiler.write_csv,
        "trace": profiler.write_trace,
        "html": profiler.write_html,
    }
    code, failed = 0, False
    process = os.getpid()
    try:
        code = run_profiled(script, command[1:], profiler)
    finally:
        # Also where the script leaves by an exit or a signal; but not in a child of the script's that leaves this way.
        if os.getpid() == process:
            failed = sum(_write(writers[kind], kind, path) for kind, path in paths.items()) > 0
            if before is not None:
                print_at_the_end(compare(before, as_dict(profiler.report())))
            if arguments.table or not (paths or before):
                print_at_the_end(lines_of(profiler.report()))
    return code or (_UNUSABLE if failed else 0)


def run_profiled(script: ScriptFile | ScriptModule, arguments: list[str], profiler: HookProfiler) -> int:
    """Runs a script with a profiler on, and waits for its threads.

    Args:
      script: the script.
      arguments: its arguments.
      profiler: the profiler, which knows of the whole program then.

    Returns:
      The exit code, where the script doesn't raise SystemExit or KeyboardInterrupt itself.
    """
    program = profiler.program = Program()
    profiler.is_of(script.called, arguments)
    profiler.start(gives_way=True)
    program.start()
    try:
        return run_script(script, arguments)
    finally:
        try:
            _wait_for_threads()
        finally:
            program.stop()
            profiler.stop()


def _wait_for_threads() -> None:
    """Waits for the script's threads, as the interpreter does at its end: they may be the ones that train."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()


def print_at_the_end(lines: list[Line]) -> None:
    """Prints lines to what `sys.stdout` is when the script has ended.

    Args:
      lines: the lines, each with its style.
    """
    if sys.stdout is None:
        return  # There is none to print to.
    try:
        sys.stdout.flush()
        print_lines(lines, sys.stdout)
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
