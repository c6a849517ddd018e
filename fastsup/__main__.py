"""The command line: `python -m fastsup run`, `profile`, `doctor`, `docs` and `--version`."""

from __future__ import annotations

import argparse
import platform
import sys
from typing import Any

import fastsup
from fastsup import pages
from fastsup.common.script import long_options
from fastsup.common.versions import tensorflow_version
from fastsup.compat import run
from fastsup.core.checks import did_you_mean
from fastsup.profile import command, doctor


class _Version(argparse.Action):
    """Prints the versions without importing TensorFlow, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        version = tensorflow_version()
        tensorflow = "no TensorFlow" if version is None else f"TensorFlow {version}"
        print(f"fastsup {fastsup.__version__} ({tensorflow}, Python {platform.python_version()})")
        parser.exit()


def main(arguments: list[str] | None = None) -> int:
    """Runs a command.

    Args:
      arguments: the command line without the program's name. If None, `sys.argv`.

    Returns:
      The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m fastsup",
        description="Makes programs of TensorFlow 1, 2 and Keras faster without an edit, and measures what slows them.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="print the versions of fastsup, TensorFlow and Python, and exit"
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    run.add_parser(commands)
    command.add_parser(commands)
    doctor.add_parser(commands)
    pages.add_parser(commands)
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        parser.print_help(sys.stderr)
        return 2
    choices = commands.choices
    if given and given[0] not in (*choices, "--version", "-h", "--help"):
        hint = did_you_mean(given[0], (*choices, "--version", "--help"))
        parser.error(f"there is no command {given[0]!r}.{hint} The commands are {', '.join(choices)}.")
    chosen, unknown = parser.parse_known_args(given)
    if unknown:
        # The command's own parser reports the error, with its usage.
        options = long_options(next(choices[name] for name in given if name in choices))
        hints = "".join(did_you_mean(option, options) for option in unknown)
        chosen.fail(f"unrecognized arguments: {' '.join(unknown)}{hints and '.'}{hints}")
    return int(chosen.run(chosen))


if __name__ == "__main__":
    sys.exit(main())
