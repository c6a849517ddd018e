"""Steppers. Each runs one kind of step until a hook is due or the loop must act for another reason.

    PythonStep      a callable
    NativeStep      a function in C (csrc/drive.c)
    BlockStep       a callable with a method `run_steps`, which can run several steps in one call
    RecordedStep    one of the first two, one step at a time under a probe

A step object with a method `run_steps` needs no other subclass: BlockStep calls it.
"""

from cpython.exc cimport PyErr_CheckSignals, PyErr_Occurred, PyErr_SetObject
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cython cimport final
from libc.math cimport HUGE_VAL, NAN
from libc.stdint cimport int64_t

from fastsup.core.checks import runs_several
from fastsup.core.clock cimport is_replaced, steady_seconds
from fastsup.core.drive cimport (
    FS_ENDED, FS_NOTHING_DUE, FS_STEP_FAILED, FS_STEP_RAISED, fs_drive_call_due, fs_drive_failed, fs_drive_is_done,
    fs_drive_run, fs_drive_step_done, fs_drive_steps_done, fs_drive_steps_until_due, fs_steady_clock
)
from fastsup.core.errors import safe_repr
from fastsup.core.loop_header cimport FS_GO_ON, FS_STOP

# After this many steps, other threads get a turn to run.
cdef int64_t YIELD_STEPS = 64

# The maximum time, in seconds, of the steps in one call. Signals are handled after each call.
SECONDS_AT_ONCE = 0.05


cdef int replacement_reached(double time) noexcept with gil:
    """Returns 1 if the replacement of `time.time` has reached a time, and -1 after an error, which stays set."""
    try:
        return steady_seconds() >= time
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        return -1


cdef double replacement_now() noexcept with gil:
    """Returns the time from the replacement of `time.time`, and 0 after an error, which stays set."""
    try:
        return steady_seconds()
    except BaseException as error:
        PyErr_SetObject(type(error), error)
        return 0.0


cdef fs_drive_clock replaced_clock
replaced_clock.reached = replacement_reached
replaced_clock.now = replacement_now


cdef int never_reached(double time) noexcept nogil:
    return 0


cdef fs_drive_clock stopped_clock
stopped_clock.reached = never_reached
stopped_clock.now = replacement_now


cdef const fs_drive_clock* clock_to_use() noexcept:
    if is_replaced():
        return &replaced_clock
    return &fs_steady_clock


cdef bint is_clock_stopped(const fs_drive* drive) noexcept:
    return drive.clock is &stopped_clock


cdef double as_double(object result) noexcept:
    """Returns a step's result for hooks in C and Cython: a float unchanged, and NaN for everything else."""
    return PyFloat_AS_DOUBLE(result) if PyFloat_Check(result) else NAN


cdef inline int yield_sometimes(const fs_drive* drive) except -1:
    """Lets other threads run, because a compiled loop around a compiled step otherwise doesn't."""
    if drive.loop.steps % YIELD_STEPS == 1:
        with nogil:
            pass
    return 0


cdef class Stepper:
    """Runs no steps, because the loop's steps run elsewhere."""

    cdef int run(self) except -1:
        return FS_ENDED

    cdef int step(self) except -1:
        return FS_ENDED


@final
cdef class PythonStep(Stepper):
    """Calls a step function in Python."""

    cdef object function
    cdef bint has_c_hooks

    cdef int run(self) except -1:
        cdef fs_drive* drive = self.drive
        cdef object function = self.function
        cdef bint has_c_hooks = self.has_c_hooks
        cdef int event
        while True:
            # A compiled loop runs no signal handlers on its own.
            PyErr_CheckSignals()
            yield_sometimes(drive)
            if fs_drive_is_done(drive):
                return FS_ENDED
            try:
                self.result = function()
            except StopIteration:
                return FS_ENDED
            except Exception as error:
                self.error = error
                return FS_STEP_RAISED
            if has_c_hooks:
                drive.loop.result = as_double(self.result)
            if drive.table.earliest.time != HUGE_VAL:
                drive.clock = clock_to_use()
            event = fs_drive_step_done(drive)
            if event != FS_NOTHING_DUE:
                # Due hooks in Cython read this value.
                drive.loop.result = as_double(self.result)
                return event
            if has_c_hooks and PyErr_Occurred() is not NULL:
                return event

    cdef int step(self) except -1:
        try:
            self.result = self.function()
        except StopIteration:
            return FS_ENDED
        except Exception as error:
            self.error = error
            return FS_STEP_RAISED
        self.drive.loop.result = as_double(self.result)
        return FS_NOTHING_DUE


@final
cdef class NativeStep(Stepper):
    """Calls a step function in C, without the GIL until something needs Python."""

    cdef int run(self) except -1:
        cdef fs_drive* drive = self.drive
        cdef int event
        PyErr_CheckSignals()
        drive.clock = clock_to_use()
        with nogil:
            event = fs_drive_run(drive)
        return event

    cdef int step(self) except -1:
        cdef fs_drive* drive = self.drive
        cdef int code
        with nogil:
            code = drive.step(&drive.loop, drive.step_context)
        if code == FS_GO_ON:
            return FS_NOTHING_DUE
        return FS_ENDED if code == FS_STOP else fs_drive_failed(drive, FS_STEP_FAILED, code)


@final
cdef class BlockStep(Stepper):
    """Lets a step function run all steps up to the next due hook in one call."""

    cdef object function
    cdef object run_steps

    cdef int run(self) except -1:
        cdef fs_drive* drive = self.drive
        cdef int64_t limit, steps
        cdef double seconds = SECONDS_AT_ONCE
        cdef bint takes_results
        cdef int event
        # Completed steps that a call hasn't returned yet, or their error, come before a timed hook, a stop or a signal.
        if not is_clock_stopped(drive):
            PyErr_CheckSignals()
            with nogil:
                pass
            if fs_drive_is_done(drive):
                return FS_ENDED
        drive.clock = clock_to_use()
        limit = fs_drive_steps_until_due(drive)
        if drive.table.earliest.time != HUGE_VAL:
            seconds = min(seconds, drive.table.earliest.time - drive.clock.now())
            if PyErr_Occurred() is not NULL:
                return -1
        takes_results = self.takes_results()
        self.results = None  # Clear the previous call's results.
        try:
            returned = self.run_steps(limit, max(seconds, 0.0), takes_results)
        except StopIteration:
            return FS_ENDED
        except Exception as error:
            self.error = error
            return FS_STEP_RAISED
        steps = self.take_returned(returned, limit, takes_results)
        if getattr(self.function, "has_more", False) is True:
            drive.clock = &stopped_clock
        self.steps_before = drive.loop.steps
        drive.loop.result = as_double(self.result)
        event = fs_drive_steps_done(drive, steps)
        if takes_results and event == FS_NOTHING_DUE:
            return fs_drive_call_due(drive)
        return event

    cdef int64_t take_returned(self, object returned, int64_t limit, bint takes_results) except -1:
        """Takes over what `run_steps` returned. Returns the number of steps."""
        cdef int64_t steps
        if not isinstance(returned, (tuple, list)) or len(returned) != 3:
            raise RuntimeError(
                f"run_steps of {self.function!r} must return the number of steps, the last step's result, and the "
                f"results of all steps or None. It returned {safe_repr(returned)}."
            )
        made, self.result, results = returned
        steps = made
        if not 1 <= steps <= limit:
            raise RuntimeError(f"run_steps of {self.function!r} must run 1 to {limit} steps, but ran {steps}.")
        if takes_results and steps > 1:
            shape = getattr(results, "shape", None)
            if results is None or (shape is not None and (len(shape) == 0 or shape[0] != steps)):
                raise RuntimeError(
                    f"run_steps of {self.function!r} must return the results of its {steps} steps, as arrays whose first "
                    f"dimension is the step, because with_results is True. It returned {safe_repr(results)}."
                )
        self.results = results
        return steps

    cdef bint takes_results(self) except -1:
        """Returns True if a hook accepts the results of all steps in the next call."""
        cdef const fs_drive* drive = self.drive
        cdef size_t i
        for i in range(drive.n_slots):
            if drive.slots[i].takes_several and drive.slots[i].due.run <= drive.loop.steps:
                return True
        return False


@final
cdef class RecordedStep(Stepper):
    """Runs one step at a time, and reports it to a probe. The loop opens the scope of the step."""

    cdef Stepper stepper
    cdef Probe probe
    cdef Part part

    cdef int run(self) except -1:
        cdef fs_drive* drive = self.drive
        cdef Probe probe = self.probe
        cdef int event
        PyErr_CheckSignals()
        yield_sometimes(drive)
        probe.enter(self.part)
        event = self.stepper.step()
        self.result, self.error = self.stepper.result, self.stepper.error
        # A function in C may have set an exception.
        if event != FS_NOTHING_DUE or PyErr_Occurred() is not NULL:
            return event
        probe.leave()
        if probe.wait_for_devices is not None:
            # Wait here, because otherwise the first callback that reads the result would be charged for the wait.
            with probe.within_session("device"):
                probe.wait_for_devices()
        drive.clock = clock_to_use()
        return fs_drive_step_done(drive)


cdef Stepper no_steps(fs_drive* drive):
    cdef Stepper stepper = Stepper()
    stepper.drive = drive
    return stepper


cdef Stepper stepper_for(fs_drive* drive, object function, Probe probe):
    cdef Stepper stepper
    cdef PythonStep in_python
    cdef BlockStep in_blocks
    cdef RecordedStep recorded
    cdef size_t i
    if drive.step is not NULL:
        stepper = NativeStep()
    # Recorded steps run one by one.
    elif not probe.records and runs_several(function):
        stepper = in_blocks = BlockStep()
        in_blocks.function = function
        in_blocks.run_steps = function.run_steps
    else:
        stepper = in_python = PythonStep()
        in_python.function = function
        for i in range(drive.n_slots):
            in_python.has_c_hooks |= drive.slots[i].function is not NULL
    stepper.drive = drive
    if probe.records:
        recorded = RecordedStep()
        recorded.drive = drive
        recorded.stepper = stepper
        recorded.probe = probe
        recorded.part = probe.run_part(None, None, None, False)
        stepper = recorded
    drive.makes_several = isinstance(stepper, BlockStep)
    drive.calls_no_hook = probe.records
    drive.clock = clock_to_use()
    return stepper
