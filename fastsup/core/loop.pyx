"""A loop over any step function, with hooks that are called when they are due and cost nothing when they are not.

A Stepper (stepper.pyx) runs the steps and counts them. It returns here for hooks, failures and the end.
"""

from cpython.exc cimport PyErr_CheckSignals, PyErr_Occurred
from cpython.pycapsule cimport PyCapsule_CheckExact, PyCapsule_GetContext
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

import logging

from fastsup.core import timeline
from fastsup.core.checks import (
    check_keywords, check_step_function, misspelt_callbacks, why_begin_failed, why_no_loop_hook,
    why_step_needs_arguments
)
from fastsup.core.drive cimport (
    FS_ENDED, FS_HOOK_DUE, FS_HOOK_FAILED, FS_NOTHING_DUE, FS_SCHEDULES_CHANGED, FS_STEP_FAILED, FS_STEP_RAISED,
    fs_drive, fs_drive_call, fs_drive_call_due, fs_drive_failed, fs_drive_free, fs_drive_is_done, fs_drive_new,
    fs_drive_reload, fs_drive_request_stop
)
from fastsup.core.errors import add_note, end_all_hooks, safe_repr, notify_hooks
from fastsup.core.hook cimport (
    FS_GO_ON, FS_STOP, FunctionHook, LoopHook, callback_after_steps, fs_loop, fs_step_fn, function_in, takes_several
)
from fastsup.core.hook import STEP_SIGNATURE
from fastsup.core.probe cimport Probe, ProbeFinder, fs_scope, probe_of
from fastsup.core.schedule cimport changes
from fastsup.core.stepper cimport Stepper, as_double, clock_to_use, is_clock_stopped, no_steps, stepper_for
from fastsup.core.sessions import current_origin

# The type of `LoopHook.on_due`. A return value of -1 need not mean that an exception is set.
ctypedef int (*on_due_t)(LoopHook, object, const fs_loop*) noexcept

# The limit of initial_step, so that initial_step plus the steps of a loop never overflows.
cdef int64_t LAST_INITIAL_STEP = 1 << 62

cdef object logger = logging.getLogger("fastsup")


cdef fs_drive* drive_of(Loop loop) noexcept:
    return <fs_drive*> loop.state


cdef LoopHook as_hook(object hook, Py_ssize_t i):
    """Returns a hook unchanged, and converts a capsule to a hook that calls the capsule's function after every step."""
    if PyCapsule_CheckExact(hook):
        return FunctionHook(hook)
    if isinstance(hook, LoopHook):
        return hook
    # Use the loop hook that a session hook provides.
    adapted = getattr(hook, "loop_hook", None)
    if isinstance(adapted, LoopHook):
        return adapted
    raise TypeError(
        f"hooks must be fastsup.core.Hook objects, or capsules of hooks in C, got {hook!r} as hooks[{i}]"
        f"{why_no_loop_hook(hook)}"
    )


def check_hook(hook, place):
    """Rejects an object that isn't a loop hook.

    Args:
      hook: the object.
      place: its index in the program's list, for the message.

    Raises:
      TypeError: If the loop can't call the object.
    """
    as_hook(hook, place)


cdef int raise_pending() except -1:
    """Raises the exception that is set."""
    return -1


cdef inline int call_on_due(LoopHook hook, Loop loop) noexcept:
    """Calls `on_due`, which may set an exception."""
    return (<on_due_t> <void*> hook.on_due)(hook, loop, loop.state)


cdef str due_hook(Loop loop):
    """Returns the last due hook, as its index in the loop's `hooks`, for a message."""
    cdef Py_ssize_t i = drive_of(loop).due_slot - drive_of(loop).slots
    return f"loop.hooks[{i}], {safe_repr(loop.hooks[i])},"


cdef str wrong_code(int code):
    """Describes a code that a step or hook must not return, for a message."""
    return f"{code}, which is neither FS_GO_ON (0) nor FS_STOP (1)"


cdef int64_t step_number(str name, object value) except? -1:
    """Checks a number of steps."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not -INT64_MAX <= value.__index__() <= INT64_MAX:
        raise ValueError(f"{name} must fit into 64 bits, got {value!r}")
    return value


cdef int64_t initial_step_number(str name, object value) except? -1:
    """Checks a global step at which a loop resumes: an integer between 0 and 2**62."""
    cdef int64_t step = step_number(name, value)
    if not 0 <= step <= LAST_INITIAL_STEP:
        raise ValueError(f"{name} must lie between 0 and 2**62, got {step!r}: steps are 64 bits.")
    return step


cdef int64_t limit_number(str name, object value) except -1:
    """Checks a limit of a loop. Returns INT64_MAX for None."""
    cdef int64_t limit = step_number(name, INT64_MAX if value is None else value)
    if limit < 0:
        raise ValueError(f"{name} must not be negative, got {limit!r}. Pass None for a loop without limit.")
    return limit


cdef class Loop:
    """Loop(step, hooks=(), max_steps=None, initial_step=0, profiler=None, *, steps=None)\n--\n
    Calls a step function repeatedly, and calls hooks after the steps on which they are due.

    The loop ends when the global step reaches `max_steps`, after `steps` steps, when a hook, the step function or
    another thread requests a stop, or when the step function raises StopIteration.

    Args:
      step: a callable without arguments; or a capsule with a C function, named by the function's signature
        (`int (fs_loop *, void *)`). The C function is called without the GIL. A callable with a method `run_steps` can
        run several steps in one call: see docs/compiled.md.
      hooks: iterable of `Hook`s and of capsules with C functions (`int (fs_loop const *, void *)`). The C functions are
        called after every step.
      max_steps: the global step at which the loop ends, or None for no limit. If the global step is already there
        before the first step, no step is run.
      initial_step: value of the global step before the first step.
      profiler: `fastsup.HookProfiler` that records the cost of hooks and steps. If None, the program-wide profiler
        records them, if one is on when `run` is called.
      steps: number of steps by which the global step grows in this loop, instead of `max_steps`; None for no limit.

    Raises:
      TypeError: If `step` can't be called without arguments, a hook isn't a `Hook`, a capsule has another signature, a
        number of steps isn't an integer, or `profiler` isn't a profiler.
      ValueError: If `max_steps` or `steps` is negative, or both are given, `initial_step` doesn't lie between 0 and
        2**62, or a number of steps doesn't fit into 64 bits.
      RuntimeError: If `__init__` is called again while the loop is running.
    """

    def __cinit__(self, *args, **kwargs):
        if kwargs:
            check_keywords(type(self), kwargs)
        self.allocate(())
        self.own_steps = INT64_MAX
        self.probes = ProbeFinder()

    def __dealloc__(self):
        fs_drive_free(drive_of(self))

    def __init__(self, step, hooks=(), max_steps=None, initial_step=0, profiler=None, *, steps=None):
        if self.running:
            raise RuntimeError("The loop is running: it can't be initialized again.")
        if not PyCapsule_CheckExact(step):
            check_step_function(step)
        if steps is not None and max_steps is not None:
            raise ValueError(
                f"Can not provide both steps and max_steps. Got steps={steps!r}, max_steps={max_steps!r}. Pass max_steps "
                "for the global step at which the loop ends, or steps for a number of steps of this loop."
            )
        cdef int64_t last_step = limit_number("max_steps", max_steps)
        cdef int64_t own_steps = limit_number("steps", steps)
        initial_step = initial_step_number("initial_step", initial_step)
        self.probes.record(profiler)
        if not hasattr(hooks, "__iter__"):
            is_hook = isinstance(hooks, LoopHook) or PyCapsule_CheckExact(hooks) or callable(hooks)
            remedy = "Pass a hook in a list" if is_hook else "Pass [] for none"
            raise TypeError(f"hooks must be an iterable of fastsup.core.Hook objects, got {hooks!r}. {remedy}.")
        self.hold(hooks)
        for hook in {type(hook): hook for hook in self.hooks}.values():
            for warning in misspelt_callbacks(hook, LoopHook):
                logger.warning(warning)
        cdef fs_drive* drive = drive_of(self)
        if PyCapsule_CheckExact(step):
            drive.step = <fs_step_fn> function_in(step, "a step function", STEP_SIGNATURE)
            drive.step_context = PyCapsule_GetContext(step)
        self.step_function = step
        drive.loop.global_step = initial_step
        drive.max_steps = last_step
        self.own_steps = own_steps
        self.limit_own_steps()

    cdef int hold(self, object hooks) except -1:
        """Stores the hooks from an iterable."""
        self.allocate(tuple([as_hook(hook, i) for i, hook in enumerate(hooks)]))
        return 0

    cdef int limit_own_steps(self) except -1:
        """Sets the final global step of a loop with a limit on its number of steps."""
        cdef fs_drive* drive = drive_of(self)
        if self.own_steps != INT64_MAX:
            drive.max_steps = drive.loop.global_step + min(self.own_steps, INT64_MAX - drive.loop.global_step)
        return 0

    cdef int allocate(self, tuple hooks) except -1:
        """Allocates the loop's state, with a slot for each hook, and frees the previous state."""
        cdef fs_drive* drive = fs_drive_new(len(hooks), changes())
        cdef LoopHook hook
        cdef Py_ssize_t i
        if drive is NULL:
            raise MemoryError()
        for i in range(len(hooks)):
            hook = hooks[i]
            drive.slots[i].function = hook.function
            drive.slots[i].context = hook.context
            drive.slots[i].schedule = hook.schedule
            drive.slots[i].due = &hook.due
            drive.slots[i].takes_several = takes_several(hook)
        fs_drive_free(drive_of(self))
        self.state = &drive.loop
        self.stepper = no_steps(drive)
        self.hooks = hooks
        return 0

    @property
    def steps(self):
        """Number of steps run by this loop, including steps repeated after a recovery."""
        return self.state.steps

    @property
    def global_step(self):
        """The global step: the restored checkpoint's step or `initial_step`, plus the steps run since."""
        return self.state.global_step

    @property
    def max_steps(self):
        """The global step at which the loop ends, also if it was given as `steps`; or None for no limit."""
        return None if drive_of(self).max_steps == INT64_MAX else drive_of(self).max_steps

    @property
    def result(self):
        """The value that the last step returned; for a step in C, `fs_loop.result`. None before the first step."""
        if drive_of(self).step is not NULL and self.state.steps > 0:
            return self.state.result
        return (<Stepper> self.stepper).result

    @property
    def step_is_native(self):
        """True if the step is a C function."""
        return drive_of(self).step is not NULL

    def request_stop(self):
        """Ends the loop after the current step. Any thread may call this."""
        fs_drive_request_stop(self.state)

    def should_stop(self):
        """Returns True once a stop was requested, or the global step has reached `max_steps`."""
        return fs_drive_is_done(drive_of(self))

    def _recover(self, error):
        """Lets a subclass recover from an error of a Python step. The loop then calls the step again.

        Args:
          error: the exception.

        Raises:
          Exception: The same error, if nothing recovers from it.
        """
        raise error

    def _end_hooks(self, probe):
        """Calls the `end` of all hooks, then raises the first error. Other errors are logged."""
        def end(hook):
            try:
                with probe.beside_steps(hook, "end"):
                    hook.end(self)
            except Exception as error:
                add_note(error, f"Raised by end of the hook {safe_repr(hook)}.")
                raise

        end_all_hooks(self.hooks, end, logger.error)

    def _set_global_step(self, global_step):
        """Sets the global step, between 0 and 2**62. The next step increments it by one."""
        drive_of(self).loop.global_step = initial_step_number("global_step", global_step)

    def run(self):
        """Runs the loop until its end.

        Returns:
          `result`: the value that the last step returned, or None if no step ran.

        Raises:
          RuntimeError: If a C function failed, or the loop is already running.
          Exception: An error of the step function or of a hook. StopIteration from the step function ends the loop
            instead.
        """
        if self.running:
            raise RuntimeError(
                "The loop is already running, in another thread or in the step or hook that called run()."
            )
        self.running = True
        try:
            return self.run_to_end()
        finally:
            self.running = False

    cdef object run_to_end(self):
        """Runs the loop, in `run`."""
        drive_of(self).message[0] = 0  # Clear the message of an earlier run.
        if self.state.steps == 0:
            # A subclass may have restored a checkpoint.
            self.limit_own_steps()
        if self.state.global_step >= drive_of(self).max_steps:
            logger.info(
                "Skipping training: the global step is already %d, and the loop ends at %d.",
                self.state.global_step,
                drive_of(self).max_steps,
            )
        cdef Probe probe = self.probe_of_run()
        self.probe = probe
        phase = timeline.begin("train")
        cdef Stepper stepper
        begun = []
        try:
            for hook in self.hooks:
                begun.append(hook)
                (<LoopHook> hook).runs_under_way += 1
                self.begin_hook(hook)
            stepper = stepper_for(drive_of(self), self.step_function, probe)
            stepper.result = (<Stepper> self.stepper).result  # Keep the result of an earlier run.
            self.stepper = stepper
            fs_drive_reload(drive_of(self))
            self.make_steps(probe)
            self._end_hooks(probe)
        except BaseException as error:
            self.note_hook(error)
            notify_hooks(begun, lambda hook: hook.on_error(self, error))
            raise
        finally:
            for hook in begun:
                (<LoopHook> hook).runs_under_way -= 1
            (<Stepper> self.stepper).results = None
            self.probe = None
            self.probes.close()
            timeline.finish(phase)
        return self.result

    cdef object probe_of_run(self):
        """Returns the probe that records this run."""
        cdef ProbeFinder probes = self.probes
        if probes.profiler[0] is not NULL:
            probes.origin = current_origin("train", type(self).__name__)
            probes.hooks = self.hooks
        return probe_of(probes, None)

    cdef int begin_hook(self, LoopHook hook) except -1:
        """Calls the hook's `begin`. Warns about a hook with a step callback that is never due, about a due hook without
        a callback, and about a hook whose due position another run also changes, unless it is due after every step."""
        cdef uint64_t before = changes()[0]
        try:
            hook.begin(self)
        except Exception as error:
            add_note(error, f"Raised by begin of the hook {safe_repr(hook)}.")
            why = why_begin_failed(hook, error) if isinstance(error, AttributeError) else None
            if why is not None:
                add_note(error, why)
            raise
        never = hook.next_run is None and hook.next_step is None and hook.next_time is None
        callback = callback_after_steps(hook)
        if never and changes()[0] == before and callback is not None:
            logger.warning(
                "%s of the hook %r won't be called: it has no due position. Call due_every_run(), due_at_step() or "
                "due_at_time() in its begin, or never_due() if you don't want calls.",
                callback,
                hook,
            )
        elif callback is None and hook.after_steps is not None:
            logger.warning(
                "The hook %r has after_steps without after_step, which the loop calls when it runs one step at a "
                "time. Define both.",
                hook,
            )
        elif callback is None and not never:
            logger.warning(
                "The hook %r is due after steps, but has no after_step, so it does nothing. Define "
                "after_step(loop, value).",
                hook,
            )
        elif not never and hook.runs_under_way > 1 and hook.schedule.every_steps != 1 and hook.due.run > 0:
            logger.warning(
                "The hook %r is used twice at the same time, but has only one due position, so some of its calls will "
                "be skipped. Create a hook for each loop, and for each place in a list of hooks.",
                hook,
            )
        return 0

    cdef int move_to(self, int64_t steps, int64_t global_step) except -1:
        """Sets the position of a loop whose steps run elsewhere, and updates when its hooks are due."""
        cdef fs_drive* drive = drive_of(self)
        drive.loop.steps = steps
        drive.loop.global_step = global_step
        fs_drive_reload(drive)
        return 0

    cdef int call_hooks_after(self, object result) except -1:
        """Calls the due hooks after a step that ran elsewhere and returned this result."""
        cdef fs_drive* drive = drive_of(self)
        (<Stepper> self.stepper).result = result
        drive.loop.result = as_double(result)
        drive.clock = clock_to_use()
        return self.handle(fs_drive_call_due(drive))

    cdef int make_steps(self, object recorder) except -1:
        """Runs the loop to its end: steps until an event needs handling, then the due hooks."""
        cdef Stepper stepper = self.stepper
        cdef Probe probe = recorder
        cdef fs_scope scope
        cdef bint is_step
        cdef int event = FS_NOTHING_DUE
        while event != FS_ENDED:
            if probe.records and fs_drive_is_done(drive_of(self)):
                break  # The probe only records steps.
            is_step = True
            probe.begin(&scope)
            try:
                event = stepper.run()
                if event == FS_STEP_RAISED:
                    error, stepper.error = stepper.error, None
                    self.step_failed(error)
                    is_step = False
                else:
                    is_step = event != FS_ENDED
                    self.handle(event)
            finally:
                probe.end(&scope, is_step)
        PyErr_CheckSignals()
        return 0

    cdef int step_failed(self, object error) except -1:
        """Adds a note with the global step to a Python step's error, and recovers from it or raises it."""
        add_note(error, f"Raised by the step function at global step {self.state.global_step}.")
        if isinstance(error, TypeError) and self.state.steps == 0:
            why = why_step_needs_arguments(self.step_function)
            if why is not None:
                add_note(error, why)
        self._recover(error)
        return 0

    cdef int note_hook(self, object error) except -1:
        """Adds a note with the Python or Cython hook, and the global step, to its error."""
        cdef fs_drive* drive = drive_of(self)
        # Hooks are checked in order after each step, so there is no next hook unless a hook was called.
        cdef Py_ssize_t i = <Py_ssize_t> drive.next_slot - 1
        if i < 0 or drive.slots[i].function is not NULL:
            return 0
        drive.next_slot = 0
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            add_note(error, f"Raised by the hook {safe_repr(self.hooks[i])} at global step {self.state.global_step}.")
        return 0

    cdef int raise_set(self, int event) except -1:
        """Raises the exception that a C function or a replaced clock has set, with a note about its origin."""
        cdef fs_drive* drive = drive_of(self)
        drive.next_slot = 0  # The exception doesn't come from a Python hook.
        try:
            raise_pending()
        except StopIteration:
            raise
        except Exception as error:
            source = "a function in C"
            if event == FS_STEP_FAILED:
                source = "the step function in C"
            elif event == FS_HOOK_FAILED:
                source = "the clock that replaces time.time" if drive.due_slot is NULL else due_hook(self)
            add_note(error, f"Raised by {source} at global step {drive.loop.global_step}.")
            raise

    cdef int handle(self, int event) except -1:
        """Does the part of an event that needs Python: raises errors, calls due hooks."""
        cdef fs_drive* drive = drive_of(self)
        while True:
            # A C function may have taken the GIL and set an exception.
            if PyErr_Occurred() is not NULL:
                return self.raise_set(event)
            if event == FS_HOOK_DUE:
                self.call_hook(drive.due_slot - drive.slots)
            elif event == FS_SCHEDULES_CHANGED:
                fs_drive_reload(drive)
                if not is_clock_stopped(drive):
                    drive.clock = clock_to_use()
            elif event == FS_STEP_FAILED or event == FS_HOOK_FAILED:
                drive.next_slot = 0
                culprit = "The step function in C" if event == FS_STEP_FAILED else due_hook(self)
                reason = drive.message.decode("utf-8", "replace") or f"it returned {wrong_code(drive.code)}"
                raise RuntimeError(f"{culprit} failed at global step {drive.loop.global_step}: {reason}")
            else:
                return 0
            event = fs_drive_call_due(drive)

    cdef int call_hook(self, Py_ssize_t i) except -1:
        """Calls a due hook, in C or in Python."""
        cdef fs_drive* drive = drive_of(self)
        cdef Probe probe = self.probe
        cdef int code
        if probe is not None:
            probe.enter(probe.callback_part(self.hooks[i], False))
        cdef Stepper stepper = self.stepper
        if (
            stepper.results is not None
            and drive.slots[i].takes_several
            and drive.slots[i].due.run <= stepper.steps_before
        ):
            self.hooks[i].after_steps(self, stepper.results)
        elif drive.slots[i].function is NULL:
            code = call_on_due(self.hooks[i], self)
            # A hook may return -1 without a Python exception, after `fs_drive_fail`.
            if PyErr_Occurred() is not NULL:
                return -1
            if code == FS_STOP:
                fs_drive_request_stop(self.state)
            elif code != FS_GO_ON:
                self.handle(fs_drive_failed(drive, FS_HOOK_FAILED, code))
        else:
            self.handle(fs_drive_call(drive, &drive.slots[i]))
        if probe is not None:
            probe.leave()
        return 0


cdef class DrivenLoop(Loop):
    """DrivenLoop(hooks)\n--\n
    Calls hooks after steps that the caller runs.

    Args:
      hooks: iterable of `fastsup.core.Hook`.
    """

    def __init__(self, hooks):
        self.hold(hooks)

    def run(self):
        """Raises RuntimeError.

        Raises:
          RuntimeError: Always.
        """
        raise RuntimeError("The session runs this loop's steps, so don't call loop.run().")

    def _begin(self, steps, global_step):
        """Calls the hooks' `begin`."""
        self.move_to(steps, global_step)
        for hook in self.hooks:
            self.begin_hook(hook)

    def _move_to(self, steps, global_step):
        """Sets the number of completed steps and the global step. Calls no hook."""
        self.move_to(steps, global_step)

    def _after_step(self, steps, global_step, result):
        """Calls the due hooks after a step. `steps` already counts the step."""
        self.move_to(steps, global_step)
        try:
            self.call_hooks_after(result)
        except Exception as error:
            self.note_hook(error)
            raise
