from collections.abc import Iterable
from typing import Any, TypeVar

from fastsup.runtime.runner import SessionRunner

_Hook = TypeVar("_Hook", bound=type)

def remember_callbacks(kind: _Hook) -> _Hook: ...

class Dispatch:
    def __init__(self, hooks: Iterable[Any], session: SessionRunner) -> None: ...
    def settle(self) -> None: ...
