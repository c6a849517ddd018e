"""Hooks of a loop: what a subclass in Python or in Cython overrides, and functions in C."""

from math import ceil

from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetContext, PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport INT64_MAX, int64_t

from fastsup.core.capsule cimport function_in
from fastsup.core.clock cimport seconds
from fastsup.core.schedule cimport Scheduled, changes, fs_due
from fastsup.core.checks import check_interval

cdef extern from "drive.h":
    const char* FASTSUP_STEP_SIGNATURE
    const char* FASTSUP_HOOK_SIGNATURE
    ctypedef struct fs_slot:
        fs_schedule schedule
        fs_due* due
    void fs_slot_advance(fs_slot* slot, int64_t global_step, double now) nogil

STEP_SIGNATURE = FASTSUP_STEP_SIGNATURE.decode()
HOOK_SIGNATURE = FASTSUP_HOOK_SIGNATURE.decode()


cdef class LoopHook(Scheduled):
    """LoopHook()\n--\n
    Something to do in a `StepLoop`, on the steps on which it says that it is due.

    A subclass overrides the callbacks, and says when it is next due with `due_at_run`, `due_at_step`, `due_at_time`
    or `due_every_run`, in `begin` for the first time and in `after_step` for each next one. It stays due until it
    says otherwise.
    """

    def begin(self, loop):
        """Called once before the first step."""

    def after_step(self, loop, value):
        """Called after each step on which the hook is due.

        Args:
          loop: the `StepLoop`.
          value: what the step function returned; `loop.result` is the same.
        """

    def end(self, loop):
        """Called once after the last step; not when the step function or a hook raised."""

    def on_error(self, loop, error):
        """Called once instead of `end`, when the step function or a hook raised. What it raises is logged.

        Args:
          loop: the `StepLoop`.
          error: the exception, which `run` then raises.
        """

    cdef int on_due(self, object loop, const fs_loop* state) except -1:
        """Called after each step on which the hook is due. A subclass in Cython overrides this one, and is then
        called without a Python call."""
        self.after_step(loop, loop.result)
        return 0


cdef class FunctionHook(LoopHook):
    """FunctionHook(function, every_steps=None, every_secs=None, context=None)\n--\n
    A hook in C: called after the steps on which it is due, without Python, and without the GIL where the step is
    in C too.

    Args:
      function: a capsule with the function, named by its signature: `int (fs_loop const *, void *)`. Its context
        (PyCapsule_SetContext) is what the function is given.
      every_steps: the function is called at the global steps that are multiples of this number, or None.
      every_secs: seconds between two calls, counted from the loop's begin, or None. With both, it is called at the
        first that comes. With neither, it is called after every step.
      context: a capsule of any name whose pointer the function is given in place of the function's own context.

    Raises:
      TypeError: a capsule is none or has another name, or an interval isn't a number.
      ValueError: an interval isn't positive.
    """

    def __init__(self, function, every_steps=None, every_secs=None, context=None):
        self.function = <fs_hook_fn> function_in(function, "a hook", HOOK_SIGNATURE)
        self.kept = function
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
            # A fraction of a step is a whole one: steps are integers.
            self.schedule.every_steps = ceil(min(every_steps, INT64_MAX))
        if every_secs is not None:
            check_interval("every_secs", every_secs)
            self.schedule.every_secs = every_secs

    def begin(self, loop):
        """Sets the first position, from the loop's step and from now."""
        cdef fs_slot slot
        slot.schedule = self.schedule
        slot.due = &self.due
        fs_slot_advance(&slot, loop.global_step, seconds())
        changes()[0] += 1


cdef str callback_after_steps(LoopHook hook):
    """What of a hook is called after a step, in C, in Cython or in Python; None if there is nothing to call."""
    if hook.function is not NULL:
        return "The function in C"
    if <void*> hook.on_due != <void*> plain.on_due:
        return "on_due"
    return "after_step" if type(hook).after_step is not LoopHook.after_step else None


cdef LoopHook plain = LoopHook()
