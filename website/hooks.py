"""What mkdocs calls while it builds the site: pages that are made of other files, and links to them.

The documents link to files of the repository, such as ../examples/digits.py, so that they can be read there too. On the
site, such a file is a page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from website import reference  # noqa: E402

# Pages by their path on the site. A folder's page shows each of its files.
_SHOWN = {
    **{f"examples/{path.stem}.md": [path] for path in sorted((ROOT / "examples").glob("*.py"))},
    "examples/embedding.md": sorted(path for path in (ROOT / "examples" / "embedding").iterdir() if path.is_file()),
}
_DOCUMENTS = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
_LANGUAGES = {".py": "python", ".pyx": "cython", ".c": "c"}
_ELSEWHERE = re.compile(r"\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")
_IN_DOCS = re.compile(r"\]\(docs/([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made.

    Args:
      files: the files of the site.
      config: the configuration of mkdocs.

    Returns:
      The files.
    """
    made = {name: _source_page(name, paths) for name, paths in _SHOWN.items()}
    made |= {name: _from_root((ROOT / path).read_text()) for name, path in _DOCUMENTS.items()}
    made |= reference.pages()
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Turns links to files of the repository into links to their pages.

    Args:
      markdown: the text of the page.
      page: the page.
      **kwargs: what mkdocs gives alongside it.

    Returns:
      The text with other links.
    """
    depth = page.file.src_uri.count("/")

    def to_page(link: re.Match[str]) -> str:
        path, anchor = link[1].rstrip("/"), link[2] or ""
        names = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
        name = names.get(path, re.sub(r"\.py$", "", path) + ".md" if path.startswith("examples/") else path)
        return f"]({'../' * depth}{name}{anchor})"

    return _ELSEWHERE.sub(to_page, markdown) if depth == 0 else markdown


def _from_root(text: str) -> str:
    """The text of a document of the root folder, with links to pages."""
    for name, path in _DOCUMENTS.items():
        text = text.replace(f"]({path})", f"]({name})")
    return _IN_DOCS.sub(r"](\1)", text)


def _source_page(name: str, paths: list[Path]) -> str:
    parts = [f"# {name.removesuffix('.md')}\n"]
    for path in paths:
        language = _LANGUAGES.get(path.suffix, "text")
        parts.append(f"`{path.relative_to(ROOT)}`\n\n````{language}\n{path.read_text()}````\n")
    return "\n".join(parts)
