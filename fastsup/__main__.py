"""The command line: `python -m fastsup profile` and `python -m fastsup doctor`."""

from __future__ import annotations

import argparse
import sys

from fastsup.profile import command, doctor


def main(arguments: list[str] | None = None) -> int:
    """Runs a command.

    Args:
      arguments: the command line without the program's name; None for that of the process.

    Returns:
      The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m fastsup",
        description="Finds out what the hooks of a training program cost, and what a step can.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="command", required=True)
    command.add_parser(commands)
    doctor.add_parser(commands)
    chosen, unknown = parser.parse_known_args(arguments)
    if unknown:
        # Said by the command, with its own usage.
        chosen.fail(f"unrecognized arguments: {' '.join(unknown)}")
    return int(chosen.run(chosen))


if __name__ == "__main__":
    sys.exit(main())
