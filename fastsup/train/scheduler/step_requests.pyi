from typing import Any, final

@final
class StepRequest:
    @property
    def rest(self) -> list[Any] | None: ...
