from collections.abc import Iterable, Sequence
from typing import Any, final

from fastsup.runtime.fetches import Fetch
from fastsup.runtime.session_run import LargeResults
from fastsup.runtime.trial import Trial

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
        returns_feeds: bool = False,
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
    def trial(self) -> Trial | None: ...
    @property
    def access(self) -> int: ...
