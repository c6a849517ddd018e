"""`python -m fastsup docs`: shows the pages that messages name, without a checkout or a browser."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any

from fastsup.core.checks import did_you_mean

__all__ = ["add_parser"]

_HEADING = re.compile(r"(#+) +(.*)")
# The start page consists of pieces of the README, and is only for the site.
_NOT_SHOWN = "index"


def add_parser(commands: Any) -> None:
    """Adds the command to a parser.

    Args:
      commands: the result of `argparse.ArgumentParser.add_subparsers`.
    """
    parser = commands.add_parser(
        "docs",
        help="show a page of the documentation",
        description="Shows a page of the documentation. Without a page: lists them.",
        allow_abbrev=False,
    )
    parser.add_argument("page", nargs="?", help="name of a page, also with a section: dropin, docs/dropin.md#hooks")
    parser.set_defaults(run=_run, fail=parser.error)


def _run(arguments: argparse.Namespace) -> int:
    folder = _folder()
    if folder is None:
        arguments.fail("the pages aren't installed. They are in the folder docs of the repository.")
        return 2
    pages = {path.stem: path for path in sorted(folder.glob("*.md")) if path.stem != _NOT_SHOWN}
    if arguments.page is None:
        width = max(map(len, pages))
        for name, path in pages.items():
            _print(f"{name:{width}}  {_title(path)}")
        return 0
    name, _, section = arguments.page.partition("#")
    name = Path(name).name.removesuffix(".md")
    if name not in pages:
        arguments.fail(f"there is no page {name!r}.{did_you_mean(name, pages)} The pages are {', '.join(pages)}.")
    text = pages[name].read_text(encoding="utf-8")
    if section:
        sections = _sections(text)
        if section not in sections:
            hint = did_you_mean(section, sections)
            arguments.fail(f"{name} has no section {section!r}.{hint} Its sections are {', '.join(sections)}.")
        text = sections[section]
    _show(text)
    return 0


def _folder() -> Path | None:
    """Returns the folder of the pages: next to this file in an installed package, otherwise the repository's docs."""
    here = Path(__file__).resolve().parent
    return next((folder for folder in (here / "docs", here.parent / "docs") if (folder / "dropin.md").exists()), None)


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return next((found[2] for line in file if (found := _HEADING.match(line))), "")


def _sections(text: str) -> dict[str, str]:
    """Returns a page's sections by anchor, each with its subsections."""
    lines = text.splitlines(keepends=True)
    begins: list[tuple[int, int, str]] = []
    in_code = False
    for number, line in enumerate(lines):
        in_code ^= line.startswith("```")
        found = None if in_code else _HEADING.match(line)
        if found:
            anchor = re.sub(r"[^\w\- ]", "", found[2].lower()).strip().replace(" ", "-")
            begins.append((number, len(found[1]), anchor))
    sections = {}
    for place, (begin, level, anchor) in enumerate(begins):
        end = next((number for number, other, _ in begins[place + 1 :] if other <= level), len(lines))
        sections[anchor] = "".join(lines[begin:end])
    return sections


def _show(text: str) -> None:
    """Prints Markdown, formatted in a terminal, and unchanged otherwise."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.markdown import Markdown
        except ImportError:
            pass
        else:
            Console().print(Markdown(text))
            return
    _print(text.rstrip("\n"))


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Without this, the interpreter's last flush would also fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
