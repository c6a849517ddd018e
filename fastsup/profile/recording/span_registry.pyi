from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from typing_extensions import Self

from fastsup.core.probe import empty_context as empty_context
from fastsup.core.sessions import NO_ORIGIN as NO_ORIGIN
from fastsup.core.sessions import SessionOrigin as SessionOrigin
from fastsup.profile.recording.statistics import RUNTIME as RUNTIME
from fastsup.profile.recording.statistics import SESSION as SESSION
from fastsup.profile.recording.statistics import Recording

OTHER_FETCHES: str

class HookStats:
    @property
    def name(self) -> str: ...

class SpanRegistry(Recording):
    description_guard: AbstractContextManager[Any]
    @property
    def step_markers(self) -> bool: ...
    def new_caller(
        self, origin: SessionOrigin | None = None, session_info: Callable[[], dict[str, Any]] = ...
    ) -> int: ...
    def register(self, hook: Any, caller: int = 0) -> HookStats: ...
    def forget(self, hooks: Any, caller: int = 0) -> None: ...
    def note_values(self, key: tuple[int, str], values: int) -> None: ...
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...

def describe(fetches: Any) -> str: ...
