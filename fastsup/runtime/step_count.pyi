from typing import final

from fastsup.runtime.runner import SessionRunner

@final
class StepCount:
    def __init__(self, session: SessionRunner) -> None: ...
    @property
    def session(self) -> SessionRunner: ...
