from typing import Any, final

from fastsup.runtime.graph_elements import ELEMENT_TYPES as ELEMENT_TYPES
from fastsup.runtime.runner import SessionRunner

@final
class StepCount:
    def __init__(self, session: SessionRunner, step_read: Any) -> None: ...
    @property
    def session(self) -> SessionRunner: ...
