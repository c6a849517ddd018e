from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from typing_extensions import Self

from fastsup.core.recording import RUNTIME as RUNTIME
from fastsup.core.recording import SESSION as SESSION
from fastsup.core.recording import Recording
from fastsup.core.session_origin import NO_ORIGIN as NO_ORIGIN
from fastsup.core.session_origin import SessionOrigin as SessionOrigin

OTHER_FETCHES: str
description_guard: AbstractContextManager[Any]

class HookStats:
    @property
    def name(self) -> str: ...

class SpanRegistry(Recording):
    def new_caller(
        self, origin: SessionOrigin | None = None, session_info: Callable[[], dict[str, Any]] = ...
    ) -> int: ...
    def register(self, hook: Any, caller: int = 0) -> HookStats: ...
    def forget(self, hooks: Any, caller: int = 0) -> None: ...
    def note_values(self, key: tuple[int, str], values: int) -> None: ...
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...

def guard_describing(guard: AbstractContextManager[Any]) -> None: ...
def describe(fetches: Any) -> str: ...
