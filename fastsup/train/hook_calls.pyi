from typing import Any, final

@final
class HookCalls:
    @property
    def context(self) -> Any: ...
