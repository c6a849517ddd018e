from collections.abc import Callable, Sequence
from typing import Any, final

def set_session_classes(recoverable: type, coordinated: type, hooked: type) -> None: ...

class WrappedBase:
    _sess: Any
    _wrapped_is_stoppable: bool

class CoordinatedBase(WrappedBase):
    _coord: Any

@final
class SessionChain:
    def __init__(self, outermost: Any) -> None: ...

class MonitoredSessionBase:
    _sess: Any
    @property
    def last_result(self) -> Any: ...
    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any: ...
    def run_without_hooks(self, fetches: Any, feed_dict: Any = None) -> Any: ...
    def should_stop(self) -> bool: ...
    def run_loop(
        self,
        fetches: Any,
        steps: int | None = None,
        feed_fn: Callable[[], Any] | Callable[[Any], Any] | None = None,
    ) -> Any: ...
    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]: ...

class SteppingFunction:
    def __init__(
        self, session: MonitoredSessionBase, fetches: Any, feed_list: Sequence[Any], accept_options: bool
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
