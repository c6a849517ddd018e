from types import FrameType
from typing import Any

from tensorflow.python.eager import context as context

from fastsup.core.sessions import PlanExecutor as PlanExecutor
from fastsup.core.sessions import origin_of_call as origin_of_call
from fastsup.eager.calls import why_not_lifted_here as why_not_lifted_here
from fastsup.eager.function import executor_of as executor_of
from fastsup.profile.recording.phases import BY_TENSORFLOW as BY_TENSORFLOW
from fastsup.profile.recording.phases import FUNCTION_ROLE as FUNCTION_ROLE
from fastsup.profile.recording.phases import TRACING as TRACING
from fastsup.profile.recording.recorder import Recorder
from fastsup.profile.recording.statistics import RUNTIME as RUNTIME
from fastsup.profile.recording.statistics import SESSION as SESSION
from fastsup.profile.recording.watch.probes import CallProbe
from fastsup.profile.recording.watch.tracing import signature_text as signature_text

FIRST_CALL: str
OTHER_TRACES: str

class FunctionProbe(CallProbe):
    def __call__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

def executors_of(stats_by_step: dict[int, Any]) -> dict[str, Any]: ...
def new_function_probe(
    recorder: Recorder, function: Any, frame: FrameType, probes: dict[int, FunctionProbe]
) -> FunctionProbe: ...
