"""The pages of the reference: one for each public package, with an entry for each public name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[1]
_TENSORFLOW = "https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/"


def public_packages() -> list[str]:
    """The names of the public packages: those of which the tests check that each public name has its help."""
    source = (ROOT / "tests" / "test_public_names.py").read_text()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "PACKAGES":
            return list(ast.literal_eval(statement.value))
    raise LookupError("tests/test_public_names.py has no PACKAGES")


def pages() -> dict[str, str]:
    """The text of each page, by its path in the folder of the documents."""
    loader = griffe.GriffeLoader(search_paths=[ROOT], allow_inspection=False)
    root = loader.load("fastsup")
    loader.resolve_aliases()
    packages = public_packages()
    # A name that two packages have is described where it comes from: fastsup.train goes before fastsup.estimator.
    shown: dict[str, str] = {}
    texts = {}
    for package in sorted(packages, key=lambda name: (name.split(".")[1:2] not in (["core"], ["train"]), name)):
        module = root if package == "fastsup" else root[package.removeprefix("fastsup.")]
        texts[f"reference/{package}.md"] = _page(package, module, packages, shown)
    return texts


def _page(package: str, module: Any, packages: list[str], shown: dict[str, str]) -> str:
    parts = [f"# {package}\n\n::: {package}\n    options:\n      members: false\n      show_root_heading: false\n"]
    parts[0] += "      show_root_toc_entry: false\n"
    for name in module.exports or ():
        path = f"{package}.{name}"
        if path in packages:
            parts.append(f"## {name} {{ #{path} }}\n\nA package: [{path}]({path}.md).\n")
            continue
        target = _target(module, name)
        if target is None or target.is_attribute:
            parts.append(_of_tensorflow(path, name))
        elif target.path in shown:
            first = shown[target.path]
            page = first.rpartition(".")[0]
            parts.append(f"## {name} {{ #{path} }}\n\nThe same as [{first}]({page}.md#{first}).\n")
        else:
            shown[target.path] = path
            parts.append(f"::: {path}\n")
    return "\n".join(parts)


def _target(module: Any, name: str) -> Any:
    """What a name of a package stands for; None if that is outside fastsup."""
    try:
        found = module.members[name]
        return found.final_target if found.is_alias else found
    except (KeyError, griffe.AliasResolutionError):
        return None


def _of_tensorflow(path: str, name: str) -> str:
    said = f"TensorFlow's own, under its own name: [tf.compat.v1.train.{name}]({_TENSORFLOW}{name})."
    return f"## {name} {{ #{path} }}\n\n{said}\n"
