"""The compiled core: the timer, the hooks of a loop, the schedule table and the step loop. Knows nothing of TensorFlow.

Each class is a thin Python subclass of a compiled one, so that it takes attributes, weak references and
`mock.patch`, and `inspect.signature` works, at no cost per call.
"""

from fastsup.core.hook import FunctionHook, LoopHook
from fastsup.core.loop import Loop
from fastsup.core.timer import Timer

__all__ = ["Hook", "NativeHook", "SecondOrStepTimer", "StepLoop"]


class SecondOrStepTimer(Timer):
    __doc__ = Timer.__doc__


class Hook(LoopHook):
    __doc__ = LoopHook.__doc__


class NativeHook(FunctionHook):
    __doc__ = FunctionHook.__doc__


class StepLoop(Loop):
    __doc__ = Loop.__doc__
