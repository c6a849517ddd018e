from libc.stdint cimport int64_t

from fastsup.core.drive cimport fs_drive, fs_drive_clock
from fastsup.core.probe cimport Part, Probe


# Runs the steps of a loop. Each kind of step has its own class: see stepper.pyx.
cdef class Stepper:
    # The state of the stepper's loop.
    cdef fs_drive* drive
    # The last step's return value; None for a step in C.
    cdef object result
    # The error after FS_STEP_RAISED. The loop takes it from here.
    cdef object error
    # The results of the last steps that ran in one call, None if no hook takes them; and the number of steps before
    # them.
    cdef object results
    cdef int64_t steps_before

    # Runs and counts steps until the loop must act. Returns an fs_event.
    cdef int run(self) except -1
    # Runs one step without counting it. Returns FS_NOTHING_DUE if it succeeded, or FS_ENDED, FS_STEP_FAILED or
    # FS_STEP_RAISED.
    cdef int step(self) except -1


# The stepper for a step function, which is None for a C function.
cdef Stepper stepper_for(fs_drive* drive, object function, Probe probe)

cdef Stepper no_steps(fs_drive* drive)

# The clock of due times: the steady one, or the program's replacement of `time.time`.
cdef const fs_drive_clock* clock_to_use() noexcept
cdef bint is_clock_stopped(const fs_drive* drive) noexcept

cdef double as_double(object result) noexcept
