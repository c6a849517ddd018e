from types import TracebackType
from typing import final

@final
class StepGate:
    patience_secs: float
    turn_secs: float
    @property
    def running(self) -> int: ...
    @property
    def passed(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> StepGate: ...
    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
