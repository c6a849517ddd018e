from collections.abc import Iterable
from typing import Any, final

from fastsup.runtime.runner import SessionRunner

@final
class HookScheduler:
    def __init__(self, hooks: Iterable[Any], session: SessionRunner) -> None: ...
    def sync_all(self) -> None: ...
