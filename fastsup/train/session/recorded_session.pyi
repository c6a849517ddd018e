from collections.abc import Iterable
from typing import Any

from fastsup.core.recorder import Recorder
from fastsup.core.recording import SESSION as SESSION
from fastsup.train.session.wrapped_sessions import Wrapped

class RecordedSession(Wrapped):
    _hooks: Any
    _opened: Any
    def __init__(self, sess: Any, hooks: Iterable[Any]) -> None: ...
    def _record(self, profiler: Recorder | None) -> None: ...
    def _forget_hooks(self) -> None: ...
