import weakref
from typing import Any

from fastsup.eager.argument_pattern import Pattern
from fastsup.eager.tracing import CallTypes

class CallPattern:
    @property
    def objects(self) -> tuple[weakref.ref[Any], ...]: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def scope(self) -> str | None: ...
    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        types: CallTypes,
        kinds: dict[type, Pattern],
        scope: str | None = None,
    ) -> None: ...
    def matches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool: ...
