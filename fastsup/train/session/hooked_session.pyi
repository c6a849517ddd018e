from collections.abc import Iterable
from typing import Any

from fastsup.core.recorder import Recorder
from fastsup.train.session.wrapped_sessions import Wrapped
from fastsup.train.session.wrapped_sessions import compiled_classes as compiled_classes

class Hooked(Wrapped):
    _hooks: Any
    _should_stop: bool
    _opened: Any
    def __init__(self, sess: Any, hooks: Iterable[Any]) -> None: ...
    def _record(self, profiler: Recorder | None) -> None: ...
    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any: ...
