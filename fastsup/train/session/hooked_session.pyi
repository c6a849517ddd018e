from collections.abc import Iterable
from typing import Any

from fastsup.train.session.recorded_session import RecordedSession
from fastsup.train.session.wrapped_sessions import compiled_classes as compiled_classes

class Hooked(RecordedSession):
    _should_stop: bool
    def __init__(self, sess: Any, hooks: Iterable[Any]) -> None: ...
    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any: ...
