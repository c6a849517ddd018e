from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from fastsup.runtime.fetches import Fetch

class Trial(Protocol):
    def next(self) -> CompiledCallable: ...
    def record(self, candidate: CompiledCallable, seconds: float) -> CompiledCallable | None: ...

class Liveness:
    open: bool

class CompiledCallable:
    def __init__(self, session_handle: Any, liveness: Liveness, options: Any) -> None: ...

class FeedSlot:
    @property
    def tensor(self) -> Any: ...
    def __init__(self, tensor: Any) -> None: ...

class Plan:
    def __init__(
        self,
        structure: Fetch,
        feeds: Iterable[Any],
        elements: Iterable[Any],
        pinned: Any,
        callable: CompiledCallable,
        trial: Trial | None = None,
    ) -> None: ...
    @property
    def structure(self) -> Fetch: ...
    @property
    def feeds(self) -> tuple[FeedSlot, ...]: ...
    @property
    def elements(self) -> tuple[Any, ...]: ...
    @property
    def pinned(self) -> Sequence[Any]: ...
    @property
    def callable(self) -> CompiledCallable: ...
