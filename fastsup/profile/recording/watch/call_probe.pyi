from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ref

from fastsup.core.probe import RECORDS_METHOD as RECORDS_METHOD
from fastsup.core.probe import program_profiler_now as program_profiler_now
from fastsup.core.sessions import origin_of_call as origin_of_call
from fastsup.profile.recording.recorder_probe import RecorderProbe
from fastsup.profile.recording.statistics import SESSION as SESSION

_F = TypeVar("_F", bound=Callable[..., Any])

class CallProbe(RecorderProbe): ...

def recorded_calls(method: _F, name: str, session_info_of: Callable[[ref[Any], str], dict[str, Any]]) -> _F: ...
