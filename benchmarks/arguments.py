"""What the commands of several benchmarks take as arguments."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["check_file_to_write", "positive"]


def positive(text: str) -> int:
    """Parses a positive integer, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def check_file_to_write(parser: argparse.ArgumentParser, option: str, file: Path | None) -> None:
    """Ends the command, before the work, if the folder of a file to write doesn't exist."""
    if file and not file.resolve().parent.is_dir():
        parser.error(f"argument {option}: there is no folder {file.resolve().parent}")
