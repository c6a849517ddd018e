from typing import Any

from fastsup.core.recorder import Recorder

class SessionProbe:
    opened: Any
    def record(self, profiler: Recorder | None) -> None: ...
    def forget(self) -> None: ...
