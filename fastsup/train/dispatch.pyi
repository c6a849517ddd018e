from collections.abc import Iterable
from typing import Any, TypeVar, final

from fastsup.runtime.runner import SessionRunner
from fastsup.train.run_requests import ASKED as ASKED

_Hook = TypeVar("_Hook", bound=type)

def remember_callbacks(kind: _Hook) -> _Hook: ...

@final
class Dispatch:
    def __init__(self, hooks: Iterable[Any], session: SessionRunner) -> None: ...
    def settle(self) -> None: ...
