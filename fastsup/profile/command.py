"""`python -m fastsup profile`: runs a script under the profiler, and shows the cost of its hooks."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from fastsup.common.files import check_writable
from fastsup.common.script import ScriptFile, ScriptModule, add_script, run_script, script_command
from fastsup.core.checks import did_you_mean
from fastsup.profile.compare import compare, load
from fastsup.profile.export import as_dict
from fastsup.profile.limits import ALL_HOOKS, Limit, broken, hook_names, limit_of, unknown
from fastsup.profile.profiler import HookProfiler
from fastsup.profile.program import Program
from fastsup.profile.table import Line, lines_of, print_lines

__all__ = ["add_parser", "print_at_the_end", "run_profiled"]

_UNTIL_THEN = "The profile covers everything up to that point."
_FAILED = f"The script failed; see the error above. {_UNTIL_THEN}"
_INTERRUPTED = f"The script was interrupted. {_UNTIL_THEN}"
_EXITED = f"The script exited with code {{}}. {_UNTIL_THEN}"
_UNUSABLE = 2
# The exit code if a limit is exceeded.
_ABOVE = 3
# Seconds between two points of the curves in TensorBoard.
_SUMMARY_SECS = 30.0


def add_parser(commands: Any) -> None:
    """Adds the command to a parser.

    Args:
      commands: the result of `ArgumentParser.add_subparsers`.
    """
    parser = commands.add_parser(
        "profile",
        help="run a script and report the cost of its callbacks and hooks",
        usage="%(prog)s [options] script [argument ...]",
        # Otherwise the script's arguments would be parsed as abbreviated options of the command.
        allow_abbrev=False,
        description="Runs a script and reports the cost of its callbacks and hooks, in Keras's fit and in fastsup's "
        "sessions and loops. Exits with the script's exit code.",
    )
    parser.add_argument("--table", action="store_true", help="print the table even if a file is written")
    parser.add_argument("--json", metavar="F", help="write the profile as JSON")
    parser.add_argument("--csv", metavar="F", help="write the rows of the table as CSV")
    parser.add_argument("--trace", metavar="F", help="write a Chrome trace, which Perfetto opens, of a sample of steps")
    parser.add_argument("--html", metavar="F", help="write a page")
    parser.add_argument(
        "--summaries", metavar="DIR", help="write summaries for TensorBoard, every half minute and at the end"
    )
    parser.add_argument("--compare", metavar="F", help="compare with F, a file written earlier by --json")
    parser.add_argument(
        "--fail-above",
        metavar="'NAME N%'",
        action="append",
        default=[],
        help=f"exit with code {_ABOVE} if a hook, a callback, a phase, or all '{ALL_HOOKS}' take more of the time, and "
        f"with code {_UNUSABLE} if no row has the name",
    )
    parser.add_argument(
        "--allow-missing", action="store_true", help="only warn about a --fail-above limit whose name matches no row"
    )
    parser.add_argument("--skip-steps", metavar="N", type=int, default=0, help="number of steps to skip at the start")
    parser.add_argument("--step-markers", action="store_true", help="mark steps for TensorFlow's own profiler")
    add_script(parser, "the script to run, and its arguments")
    parser.set_defaults(run=run, fail=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command.

    Args:
      arguments: the parsed command line.

    Returns:
      The exit code. SystemExit and KeyboardInterrupt of the script are raised instead.
    """
    command = script_command(arguments)
    try:
        before = None if arguments.compare is None else load(arguments.compare)
    except (OSError, ValueError) as error:
        arguments.fail(f"--compare {arguments.compare} can't be used: {error}")
    try:
        script = (ScriptModule if arguments.is_module else ScriptFile)(command[0])
    except (OSError, ImportError) as error:
        arguments.fail(f"the script can't be read: {error}")
    try:
        limits = [limit_of(text) for text in arguments.fail_above]
    except ValueError as error:
        arguments.fail(f"--fail-above: {error}")
    paths = {kind: getattr(arguments, kind) for kind in ("json", "csv", "trace", "html")}
    paths = {kind: path and os.path.abspath(path) for kind, path in paths.items() if path is not None}
    taken = {os.path.realpath(script.path): "the script"}
    for kind, path in paths.items():
        problem = _problem_with(path)
        if problem:
            arguments.fail(f"--{kind} {path} can't be written: {problem}")
        other = taken.setdefault(os.path.realpath(path), f"--{kind}")
        if other != f"--{kind}" and not path.startswith("/dev/"):
            arguments.fail(f"--{kind} {path} would overwrite {other}: it is the same file")
    if arguments.summaries is not None and "://" not in arguments.summaries:
        # The script may change the working directory.
        arguments.summaries = os.path.abspath(arguments.summaries)
        try:
            os.makedirs(arguments.summaries, exist_ok=True)
        except OSError as error:
            arguments.fail(f"--summaries {arguments.summaries} can't be written: {error}")
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
    code, failed, exceeded, end_line = 0, False, False, ""
    process = os.getpid()
    summaries = None if arguments.summaries is None else _SummaryThread(profiler, arguments.summaries)
    try:
        if summaries is not None:
            summaries.start()
        code = run_profiled(script, command[1:], profiler)
        end_line = _FAILED if code else ""
    except SystemExit as end:
        if end.code not in (None, 0):
            end_line = _EXITED.format(end.code if isinstance(end.code, int) else 1)
            raise
    except KeyboardInterrupt:
        end_line = _INTERRUPTED
        raise
    finally:
        # Write the files also after an exit or a signal, but not in a child process that the script forked.
        if os.getpid() == process:
            if summaries is not None:
                failed = not summaries.finish()
            failed = sum(_write(writers[kind], kind, path) for kind, path in paths.items()) > 0 or failed
            if before is not None:
                print_at_the_end(compare(before, as_dict(profiler.report())))
            # If a file failed, the table is what remains of the profile.
            shows_table = arguments.table or failed or not (paths or before or summaries)
            if shows_table:
                print_at_the_end(lines_of(profiler.report()))
            if end_line and (shows_table or before):
                print_at_the_end([(end_line, "red")])
            exceeded = _say_exceeded(profiler, limits)
            failed = (_say_missing(profiler, limits) and not arguments.allow_missing) or failed
    return code or (_UNUSABLE if failed else _ABOVE if exceeded else 0)


def run_profiled(script: ScriptFile | ScriptModule, arguments: list[str], profiler: HookProfiler) -> int:
    """Runs a script under a profiler, and waits for its threads.

    Args:
      script: the script.
      arguments: its arguments.
      profiler: the profiler. Its `program` is set.

    Returns:
      The exit code. SystemExit and KeyboardInterrupt of the script are raised instead.
    """
    program = profiler.program = Program()
    profiler.is_of(script.called, arguments)
    profiler.start(replaceable=True)
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
    """Waits for the script's threads, which may be training, as the interpreter does when it exits."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()


class _SummaryThread(threading.Thread):
    """Periodically writes summaries of a profile, and once more at the end.

    Args:
      profiler: the profiler.
      directory: directory of the event file.
    """

    def __init__(self, profiler: HookProfiler, directory: str) -> None:
        # The thread is a daemon, because the command waits for the script's threads before it ends this one.
        super().__init__(name="fastsup-profile-summaries", daemon=True)
        self._profiler, self._directory = profiler, directory
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        while not self._ended.wait(_SUMMARY_SECS) and self._error is None:
            self._write()

    def _write(self) -> None:
        # Don't import TensorFlow before the script does, because the script may first configure TensorFlow.
        if "tensorflow" not in sys.modules and not self._ended.is_set():
            return
        try:
            self._profiler.write_summaries(self._directory)
        except Exception as error:
            self._error = error

    def finish(self) -> bool:
        """Ends the thread, writes the last summaries, and prints their place. Returns False if this fails."""
        self._ended.set()
        self.join()
        if self._error is None:
            self._write()
        if self._error is not None:
            print(
                f"python -m fastsup profile: --summaries {self._directory} could not be written: {self._error}",
                file=sys.stderr,
            )
            return False
        print(f"Written: {self._directory}", file=sys.stderr)
        return True


def print_at_the_end(lines: list[Line]) -> None:
    """Prints lines to the `sys.stdout` that the script left.

    Args:
      lines: the lines, each with its style.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
        print_lines(lines, sys.stdout)
    except BrokenPipeError:
        # The reader closed the pipe. Without this, the interpreter's last flush would also fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except (OSError, ValueError) as error:
        print(f"python -m fastsup profile: the table could not be printed: {error}", file=sys.stderr)


def _say_exceeded(profiler: HookProfiler, limits: list[Limit]) -> bool:
    """Reports exceeded limits. Returns True if there are any."""
    sentences = broken(profiler.report(), limits)
    for sentence in sentences:
        print(f"python -m fastsup profile: --fail-above: {sentence}", file=sys.stderr)
    return bool(sentences)


def _say_missing(profiler: HookProfiler, limits: list[Limit]) -> bool:
    """Reports limits whose names match no row. Returns True if there are any."""
    report = profiler.report()
    missing = unknown(report, limits)
    names = list(dict.fromkeys([*hook_names(report), *(row.phase for row in [*report.session, *report.rows])]))
    there = f"The hooks, callbacks and phases are {', '.join(names)}." if names else "Nothing was recorded."
    for name in missing:
        print(
            f"python -m fastsup profile: --fail-above: no row has the name {name!r}, so its limit isn't checked."
            f"{did_you_mean(name, names)} {there}",
            file=sys.stderr,
        )
    return bool(missing)


def _problem_with(path: str) -> str:
    """Returns the reason why a file can't be written, or ""."""
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
