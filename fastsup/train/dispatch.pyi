from collections.abc import Iterable
from typing import Any, TypeVar, final

from fastsup.runtime.runner import SessionRunner

_Hook = TypeVar("_Hook", bound=type)

def remember_callbacks(kind: _Hook) -> _Hook: ...

@final
class Dispatch:
    def __init__(self, hooks: Iterable[Any], session: SessionRunner) -> None: ...
    def settle(self) -> None: ...
