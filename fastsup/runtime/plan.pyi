from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, final

from fastsup.runtime.fetches import Fetch

class Trial(Protocol):
    on_trial: bool
    @property
    def runs_until_look(self) -> int: ...
    def next(self) -> CompiledCallable: ...
    def record(self, candidate: CompiledCallable, seconds: float) -> CompiledCallable | None: ...
    def look_again(self) -> None: ...
    def start_over(self) -> None: ...

class LargeResults(Protocol):
    def copied(self, size: int, options: bytes) -> Callable[[tuple[Any, ...] | None], list[Any]] | None: ...

@final
class Liveness:
    open: bool

@final
class CompiledCallable:
    def __init__(self, session_handle: Any, liveness: Liveness, options: bytes) -> None: ...
    @property
    def options(self) -> bytes: ...

@final
class FeedSlot:
    @property
    def tensor(self) -> Any: ...
    def __init__(self, tensor: Any) -> None: ...

@final
class Plan:
    def __init__(
        self,
        structure: Fetch,
        feeds: Iterable[Any],
        elements: Iterable[Any],
        pinned: Any,
        callable: CompiledCallable | None,
        trial: Trial | None = None,
        access: int = 0,
        large_results: LargeResults | None = None,
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
    def callable(self) -> CompiledCallable | None: ...
    @property
    def trial(self) -> Any: ...
    @property
    def access(self) -> int: ...
