"""Checks what mkdocs doesn't check of the site that it has built: `python -m website.check site`.

Each public name has an entry in the reference, and nothing is loaded from the network. Links are mkdocs's to check.
"""

from __future__ import annotations

import ast
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

from website.reference import ROOT, public_packages


class Page(HTMLParser):
    """The anchors and the loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        if tag == "link" and values.get("rel") != "canonical":
            self.loaded.append(values.get("href", ""))
        elif "src" in values:
            self.loaded.append(values["src"])


def public_names() -> list[str]:
    """The public names of all packages, read from the sources: `fastsup.train.Supervisor`."""
    found = []
    for package in public_packages():
        folder = ROOT.joinpath(*package.split("."))
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                found += [f"{package}.{name}" for name in _listed(statement.value)]
    return found


def _listed(value: ast.expr) -> list[str]:
    return [node.value for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def problems(site: Path) -> list[str]:
    """What is wrong with a site.

    Args:
      site: its folder.
    """
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = [
        f"{path.relative_to(site)} loads {file} from the network"
        for path, page in pages.items()
        for file in page.loaded
        if urlsplit(file).scheme not in ("", "data") or urlsplit(file).netloc
    ]
    anchors = set().union(*(page.anchors for page in pages.values()))
    names = public_names()
    found += [f"the reference has no {name}" for name in names if name not in anchors]
    if len(pages) < 40 or len(names) < 150:
        found.append(f"only {len(pages)} pages and {len(names)} public names were found")
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or "The site is whole.")
    sys.exit(1 if wrong else 0)
