from typing import Any

from fastsup.core.schedule import Scheduled

STEP_SIGNATURE: str
HOOK_SIGNATURE: str

class LoopHook(Scheduled):
    fetches: Any
    after_steps: Any
    def _is_due(self, run: int, global_step: int) -> bool: ...
    def begin(self, loop: Any) -> None: ...
    def after_step(self, loop: Any, value: Any) -> None: ...
    def end(self, loop: Any) -> None: ...
    def on_error(self, loop: Any, error: BaseException) -> None: ...

class FunctionHook(LoopHook):
    def __init__(
        self,
        function: Any,
        every_steps: int | None = None,
        every_secs: float | None = None,
        context: Any = None,
    ) -> None: ...

def normal(signature: str) -> str: ...
