"""Lets the reference show the docstrings of compiled classes, without importing them.

The signatures of a compiled module are in its .pyi file, and its docstrings in its .pyx file. Griffe reads the former.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

import griffe

_BLOCK = re.compile(r"^( *)(?:cdef class|class|def|cpdef|cdef) (?:[\w.*]+ )*?\*?(\w+) ?[(:]", re.MULTILINE)
_DOCSTRING = re.compile(r'\s*("""(?:[^"\\]|\\.|"(?!""))*""")', re.DOTALL)
# What Cython has of a signature in a docstring.
_SIGNATURE = re.compile(r"\A\S[^\n]*\n--\n\s*")


def docstrings_of(source: str) -> dict[str, str]:
    """The docstrings of a .pyx file.

    Args:
      source: the text of the file.

    Returns:
      The docstrings by the name of the class or function; "Class.method" for a method.
    """
    found: dict[str, str] = {}
    outer: list[tuple[int, str]] = []
    for block in _BLOCK.finditer(source):
        indent = len(block[1])
        while outer and outer[-1][0] >= indent:
            outer.pop()
        outer.append((indent, block[2]))
        end = _end_of_head(source, block.end() - 1)
        docstring = _DOCSTRING.match(source, end)
        if docstring:
            text = ast.literal_eval(docstring[1])
            first, _, rest = text.partition("\n")
            text = first + "\n" + textwrap.dedent(rest)
            found[".".join(name for _, name in outer)] = _SIGNATURE.sub("", text).strip()
    return found


def _end_of_head(source: str, start: int) -> int:
    """The position behind the colon that ends the head of a block."""
    depth = 0
    for position in range(start, len(source)):
        depth += (source[position] in "([{") - (source[position] in ")]}")
        if source[position] == ":" and depth == 0:
            return position + 1
    return len(source)


class PyxDocstrings(griffe.Extension):
    """Gives the objects of compiled modules, and the thin classes over them, their docstrings."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Called by griffe when a package is loaded.

        Args:
          pkg: the package.
          **kwargs: what griffe gives alongside it.
        """
        self._fill(pkg)

    def _fill(self, module: griffe.Module) -> None:
        path = module.filepath
        source = path.with_suffix(".pyx") if isinstance(path, Path) else None
        if source is not None and source.exists():
            for name, text in docstrings_of(source.read_text()).items():
                _describe(module, name, text)
        for member in list(module.members.values()):
            if isinstance(member, griffe.Module):
                self._fill(member)
                continue
            if isinstance(member, griffe.Class) and "__new__" in member.members and "__init__" not in member.members:
                # Griffe takes a class's parameters from __init__.
                made = member.members["__new__"]
                member.set_member("__init__", griffe.Function("__init__", parameters=made.parameters, parent=member))
            if isinstance(member, griffe.Class) and "__doc__" in member.members and member.docstring is None:
                # class StepLoop(Loop): __doc__ = Loop.__doc__
                base = str(member.members["__doc__"].value).removesuffix(".__doc__")
                target = module[base]
                if target.is_alias:
                    target = target.final_target
                    self._fill(target.module)
                member.docstring = target.docstring
                del member.members["__doc__"]


def _describe(module: griffe.Module, name: str, text: str) -> None:
    try:
        found = module[name]
    except KeyError:
        return  # It isn't in the .pyi file: it isn't a part of the interface.
    if found.docstring is None:
        found.docstring = griffe.Docstring(text, parent=found)
