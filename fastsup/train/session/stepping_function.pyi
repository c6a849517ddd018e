from collections.abc import Sequence
from typing import Any

from fastsup.train.session.monitored import MonitoredSessionBase

class SteppingFunction:
    def __init__(
        self, session: MonitoredSessionBase, fetches: Any, feed_list: Sequence[Any], accept_options: bool
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
