from collections.abc import Callable
from typing import Any, TypeVar

from fastsup.profile.recording.statistics import SESSION as SESSION

_F = TypeVar("_F", bound=Callable[..., Any])

def timed(function: _F, phase: str, detail_of: Callable[..., str] | None = None, of_session: bool = False) -> _F: ...
