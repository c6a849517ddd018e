"""`python -m fastsup run`: runs a program that uses TensorFlow's sessions or `tf.estimator`, unchanged."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from fastsup.common.script import ScriptFile, ScriptModule, add_script, run_script, script_command
from fastsup.compat.install import install_at_import

__all__ = ["add_parser", "run"]

# Python's own exit codes.
_NO_FILE, _NO_MODULE = 2, 1


def add_parser(commands: Any) -> None:
    """Adds the command to a parser."""
    parser = commands.add_parser(
        "run",
        help="run a program that uses TensorFlow's sessions or tf.estimator, unchanged",
        usage="%(prog)s [--tf1] [--accelerate] [--functions] [--keras] [--report] [-m] script [argument ...]",
        allow_abbrev=False,
        description="Runs a script with fastsup instead of TensorFlow's sessions, hooks and Supervisor, and with "
        "tf.estimator. Exits with the script's exit code.",
    )
    parser.add_argument("--tf1", action="store_true", help="run a TensorFlow 1 script: tensorflow is tf.compat.v1")
    parser.add_argument("--accelerate", action="store_true", help="--functions and --keras")
    parser.add_argument("--functions", action="store_true", help="run tf.function as fastsup.function runs functions")
    parser.add_argument("--keras", action="store_true", help="accelerate Keras models when they are compiled")
    parser.add_argument(
        "--report", action="store_true", help="at the end, print the status of functions and models to stderr"
    )
    add_script(parser, "the script to run, and its arguments")
    parser.set_defaults(run=run, fail=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    command = script_command(arguments)
    if command[0].startswith("-"):
        arguments.fail(f"unrecognized arguments: {command[0]}")
    # Finding a module may import its package, and thereby TensorFlow.
    functions, keras = arguments.functions or arguments.accelerate, arguments.keras or arguments.accelerate
    if arguments.report and not (functions or keras):
        arguments.fail("--report is about functions and models: add --accelerate, --functions or --keras")
    install_at_import(arguments.tf1, functions, keras)
    try:
        script = (ScriptModule if arguments.is_module else ScriptFile)(command[0])
    except OSError as error:
        path = os.path.abspath(command[0])
        if os.path.isdir(path):
            print(f"{sys.executable}: can't find '__main__' module in {path!r}", file=sys.stderr)
            return _NO_MODULE
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        return _NO_FILE
    except ModuleNotFoundError as error:
        print(
            f"{sys.executable}: Error while finding module specification for {command[0]!r} ", end="", file=sys.stderr
        )
        print(f"({type(error).__name__}: {error})", file=sys.stderr)
        return _NO_MODULE
    except ImportError:
        print(f"{sys.executable}: No module named {command[0]}", file=sys.stderr)
        return _NO_MODULE
    process = os.getpid()
    try:
        return run_script(script, command[1:])
    finally:
        if arguments.report and os.getpid() == process:
            _print_report()


def _print_report() -> None:
    if "tensorflow" not in sys.modules:
        return  # The program ended before it imported TensorFlow.
    from fastsup.compat.lifting import report

    print(f"\nfastsup: status of the functions and Keras models\n{report()}", file=sys.stderr)
