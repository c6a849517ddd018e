"""Runs `python -m fastsup ...`, and writes to a file which of TensorFlow's own session-layer classes were made.

The first argument is the file; the others are those of the command.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

from fastsup.__main__ import main
from fastsup.compat import install

made: dict[str, int] = {}


def counted(constructor: Any) -> Any:
    @functools.wraps(constructor)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        kind = type(self)
        if kind.__module__.startswith("tensorflow."):
            made[kind.__qualname__] = made.get(kind.__qualname__, 0) + 1
        constructor(self, *args, **kwargs)

    return construct


def count() -> None:
    from fastsup.compat.replaced_names import REPLACEMENTS

    for theirs, _ in REPLACEMENTS:
        if isinstance(theirs, type) and "__init__" in vars(theirs):
            theirs.__init__ = counted(theirs.__init__)


complete_in = install.Installation.complete_in


def complete_and_count(self: install.Installation, tensorflow: Any) -> None:
    before = self.complete
    complete_in(self, tensorflow)
    if not before:
        count()


path = sys.argv.pop(1)
plain = sys.argv[1] == "plain"
if plain:
    # To see that there is something to count, without an installation.
    from fastsup.compat import run

    count()
    run.install_at_import = lambda *arguments: None
    sys.argv[1] = "run"
else:
    install.Installation.complete_in = complete_and_count
try:
    code = main(sys.argv[1:])
finally:
    with open(path, "w") as file:
        json.dump(made, file)
sys.exit(code)
