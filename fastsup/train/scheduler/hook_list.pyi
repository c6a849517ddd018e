from collections.abc import Iterable
from typing import Any, final

@final
class HookList:
    def __init__(self, hooks: Iterable[Any], step_read: Any) -> None: ...
