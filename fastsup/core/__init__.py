"""The compiled core: the timer, schedules, hooks, the step loop, and the probe of profiles. Needs no TensorFlow.

Each public class is a thin Python subclass of a compiled one. It therefore supports attributes, weak references,
`mock.patch` and `inspect.signature`, at no cost per call.
"""

try:
    from fastsup.core.hook import FunctionHook, LoopHook
    from fastsup.core.loop import Loop
except ModuleNotFoundError as _error:
    if _error.name != "fastsup.core.hook":
        raise
    import shlex
    import sys

    _folder = __path__[0].removesuffix("/fastsup/core")
    _python = "Python {}.{}".format(*sys.version_info)
    _command = shlex.join([sys.executable or "python", "-m", "pip", "install", "-e", _folder])
    raise ModuleNotFoundError(
        f"fastsup isn't compiled for {_python} in {_folder}, the folder that Python imports. Compile it "
        f"there: {_command} - or start Python in another folder, to use an installed fastsup.",
        name=_error.name,
    ) from None
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


def __dir__() -> list[str]:
    return sorted(__all__)
