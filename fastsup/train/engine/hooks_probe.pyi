from typing import Any

from fastsup.core.recording import SESSION as SESSION
from fastsup.runtime.session_probe import SessionProbe

class HooksProbe(SessionProbe):
    def set_hooks(self, hooks: Any) -> None: ...
