from collections.abc import Callable
from typing import Any

from fastsup.core.recorder import Recorder

def session_info_of(session: Any) -> Callable[[], dict[str, Any]]: ...

class SessionProbe:
    opened: Any
    def record(self, profiler: Recorder | None) -> None: ...
    def forget(self) -> None: ...
