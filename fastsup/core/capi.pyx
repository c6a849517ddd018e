"""The functions of fastsup.h, and the capsule in which C finds them."""

from cpython.pycapsule cimport PyCapsule_New, PyCapsule_SetContext
from libc.stdint cimport int64_t

from fastsup.core.drive cimport fs_drive_fail, fs_drive_request_stop
from fastsup.core.hook cimport FunctionHook, LoopHook, fs_hook_fn, fs_loop, fs_schedule, fs_step_fn
from fastsup.core.loop cimport Loop

from fastsup.core import NativeHook, StepLoop

cdef extern from "clock.h":
    double fs_clock_seconds() noexcept nogil


cdef object capsule_of(void* function, const char* signature, void* context, str role):
    if function is NULL:
        raise TypeError(f"{role} in C must be a function {signature.decode()!r}, got NULL")
    capsule = PyCapsule_New(function, signature, NULL)
    PyCapsule_SetContext(capsule, context)
    return capsule


cdef object hook_new(fs_hook_fn function, void* context, const fs_schedule* schedule, PyObject* owner):
    """Creates a hook in C. If the schedule is NULL, it is called after every step. The owner may be NULL."""
    capsule = capsule_of(<void*> function, FASTSUP_HOOK_SIGNATURE, context, "a hook")
    steps, secs = (None, None) if schedule is NULL else (schedule.every_steps or None, schedule.every_secs or None)
    for name, interval in (("every_steps", steps), ("every_secs", secs)):
        if interval is not None and not interval > 0:
            raise ValueError(f"{name} of an fs_schedule must be positive, or 0 to leave it out; got {interval!r}.")
    cdef FunctionHook hook = NativeHook(capsule, every_steps=steps, every_secs=secs)
    hook.owner = None if owner is NULL else <object> owner
    return hook


cdef object loop_new(
    fs_step_fn step, void* context, PyObject* hooks, int64_t max_steps, int64_t initial_step, PyObject* owner
):
    """Creates a loop around a C step function. NULL hooks mean none, negative max_steps no limit."""
    capsule = capsule_of(<void*> step, FASTSUP_STEP_SIGNATURE, context, "a step function")
    given = () if hooks is NULL else <object> hooks
    cdef Loop loop = StepLoop(capsule, given, None if max_steps < 0 else max_steps, initial_step)
    loop.owner = None if owner is NULL else <object> owner
    return loop


cdef Loop checked(object loop):
    if not isinstance(loop, Loop):
        raise TypeError(f"loop must be a fastsup.core.StepLoop, got {loop!r}")
    return loop


cdef int loop_run(object loop) except -1:
    checked(loop).run()
    return 0


cdef const fs_loop* loop_state(object loop) except NULL:
    return checked(loop).state


# The package's version, which `package_version` in the API points to.
cdef bytes version = b""
cdef fs_api api
api.abi_version = FASTSUP_ABI_VERSION
api.abi_revision = FASTSUP_ABI_REVISION
api.package_version = version
api.clock = fs_clock_seconds
api.request_stop = fs_drive_request_stop
api.fail = fs_drive_fail
api.hook_new = hook_new
api.loop_new = loop_new
api.loop_run = loop_run
api.loop_state = loop_state



def c_api(package_version):
    """Returns the capsule that `fastsup_import` loads.

    Args:
      package_version: the version string for the error of a module compiled for another ABI.
    """
    global version
    version = package_version.encode()
    api.package_version = version
    return PyCapsule_New(&api, FASTSUP_CAPSULE_NAME, NULL)
