"""Hooks of a `StepLoop`: the base class for hooks in Python and Cython, and the hook that calls a C function."""

from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetContext, PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport INT64_MAX, int64_t

from math import ceil

from fastsup.core.checks import check_interval, check_keywords
from fastsup.core.clock cimport as_steady, steady_reached, steady_seconds
from fastsup.core.drive cimport fs_slot, fs_slot_advance
from fastsup.core.schedule cimport Scheduled, changes, fs_due_reached, fs_time_reached_fn, number_of_seconds

cdef extern from "fastsup/loop.h":
    const char* FASTSUP_STEP_SIGNATURE
    const char* FASTSUP_HOOK_SIGNATURE

STEP_SIGNATURE = FASTSUP_STEP_SIGNATURE.decode()
HOOK_SIGNATURE = FASTSUP_HOOK_SIGNATURE.decode()


cdef class LoopHook(Scheduled):
    """LoopHook()\n--\n
    Base class of the hooks of a `StepLoop`, which are called after the steps on which they are due.

    A subclass overrides the callbacks. It sets when it is due with `due_at_run`, `due_at_step`, `due_at_time` or
    `due_every_run`: first in `begin`, then in each `after_step`. A hook that doesn't set a later time stays due after
    every step. `reschedule` replaces all due positions.

    A session of `fastsup.train` also accepts these hooks. In a session, `loop` replaces the `StepLoop`, with the same
    attributes and `loop.session`. `value` is the value of the hook's `fetches`.

    Attributes:
      fetches: the values that a session fetches for the hook when it is due: a tensor, an operation, or a list, tuple
        or dictionary of these. None for nothing. A `StepLoop` doesn't read it.
    """

    fetches = None

    def _is_due(self, int64_t run, int64_t global_step):
        """Returns True if the hook is due in a run, or at a global step, or now."""
        return fs_due_reached(&self.due, run, global_step, <fs_time_reached_fn> steady_reached) != 0

    def __cinit__(self, *args, **kwargs):
        if kwargs:
            check_keywords(type(self), kwargs)

    cpdef due_at_time(self, object time):
        # The hook must not wait because the clock was set back.
        Scheduled.due_at_time(self, as_steady(number_of_seconds(time)))

    def begin(self, loop):
        """Called once before the first step.

        Args:
          loop: the `StepLoop`.
        """

    def after_step(self, loop, value):
        """Called after each step on which the hook is due.

        Args:
          loop: the `StepLoop`.
          value: the value that the step function returned, as in `loop.result`. In a session, the value of `fetches`.
        """

    # A subclass may have a method `after_steps(loop, values)`: see docs/hooks.md. Without it, the loop runs one
    # step at a time while the hook is due after each step.
    after_steps = None

    def end(self, loop):
        """Called once after the last step, unless the step function or a hook raised an error.

        Args:
          loop: the `StepLoop`.
        """

    def on_error(self, loop, error):
        """Called once instead of `end` after an error in the step function or a hook. An error here is logged.

        Args:
          loop: the `StepLoop`.
          error: the exception, which `run` then raises.
        """

    cdef int on_due(self, object loop, const fs_loop* state) except -1:
        """Called after each step on which the hook is due. A subclass in Cython overrides it, to save a Python call."""
        self.after_step(loop, loop.result)
        return 0


cdef class FunctionHook(LoopHook):
    """FunctionHook(function, every_steps=None, every_secs=None, context=None)\n--\n
    A hook that calls a C function after the steps on which it is due. If the step is also in C, the function is called
    without the GIL.

    Args:
      function: a capsule with the function, named by its signature: `int (fs_loop const *, void *)`. Its context
        (PyCapsule_SetContext) is the function's second argument.
      every_steps: the function is called at the global steps that are multiples of this number, or None.
      every_secs: seconds between calls, counted from the loop's start, or None. With both intervals, the one that
        passes first counts. With neither, the function is called after every step.
      context: a capsule of any name, whose pointer is the function's second argument instead of the capsule's context.

    Raises:
      TypeError: If `function` or `context` isn't a capsule, `function` has another name, or an interval isn't a number.
      ValueError: If an interval isn't positive.
    """

    def __init__(self, function, every_steps=None, every_secs=None, context=None):
        self.function = <fs_hook_fn> function_in(function, "a hook", HOOK_SIGNATURE)
        self.capsule = function
        self.owner = context
        if context is None:
            self.context = PyCapsule_GetContext(function)
        elif PyCapsule_CheckExact(context):
            self.context = PyCapsule_GetPointer(context, PyCapsule_GetName(context))
        else:
            raise TypeError(f"context must be a capsule or None, got {context!r}")
        if every_steps is None and every_secs is None:
            every_steps = 1
        if every_steps is not None:
            check_interval("every_steps", every_steps)
            # Steps are integers: a fraction is rounded up.
            self.schedule.every_steps = ceil(min(every_steps, INT64_MAX))
        if every_secs is not None:
            check_interval("every_secs", every_secs)
            self.schedule.every_secs = every_secs

    def begin(self, loop):
        """Sets when the hook is first due, from the loop's global step and the time."""
        cdef fs_slot slot
        slot.schedule = self.schedule
        slot.due = &self.due
        fs_slot_advance(&slot, loop.global_step, steady_seconds())
        changes()[0] += 1


cdef str callback_after_steps(LoopHook hook):
    """Returns the name of a hook's callback after steps, in C, Cython or Python; None for a hook without one."""
    if hook.function is not NULL:
        return "The function in C"
    if <void*> hook.on_due != <void*> plain.on_due:
        return "on_due"
    # The attribute covers both class and object. Reading the object's __dict__ would make later calls slower.
    if getattr(hook.after_step, "__func__", None) is LoopHook.after_step:
        return None
    return "after_step"


cdef bint takes_several(LoopHook hook) except -1:
    """Returns True if a hook accepts the results of several steps in one call, by a method `after_steps`.

    Returns False if a subclass of the class that defines it overrides `after_step` or the C methods, because the loop
    must then call the override.
    """
    if hook.after_steps is None or hook.function is not NULL:
        return False
    for kind in type(hook).__mro__:
        if "after_steps" in vars(kind):
            return True
        if "after_step" in vars(kind):
            return False
    return True


cdef LoopHook plain = LoopHook()


def normal(signature):
    """Returns a signature in one form for all spellings that mean the same in C.

    Args:
      signature: the signature, with any spaces, and `const` before or after its type.
    """
    return "".join(signature.replace("const fs_loop", "fs_loop const").split())


cdef void* function_in(object capsule, str role, str signature) except NULL:
    """Returns the function in a capsule. Raises TypeError for another object or another signature."""
    if not PyCapsule_CheckExact(capsule):
        raise TypeError(f"{role} in C must be a capsule named {signature!r}, got {capsule!r}")
    cdef const char* name = PyCapsule_GetName(capsule)
    given = None if name is NULL else name.decode("utf-8", "replace")
    if given is None or normal(given) != normal(signature):
        raise TypeError(
            f"{role} in C must have the signature {signature!r}, but the capsule is named {given!r}. "
            "Compile the function with that signature (fastsup.h), and give the capsule that name."
        )
    return PyCapsule_GetPointer(capsule, name)
