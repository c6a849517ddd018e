from cython cimport final
from libc.math cimport HUGE_VAL
from libc.stdint cimport int64_t, uint64_t

from fastsup.core.clock cimport reached

cdef extern from "fastsup/due.h":
    const int64_t FS_DUE_NEVER
    ctypedef struct fs_due:
        int64_t run
        int64_t global_step
        double time


# Address of the count of changes to schedules. Add 1 after each change.
cdef uint64_t* changes() noexcept


cdef inline bint due_reached(const fs_due* due, int64_t run, int64_t global_step) except -1:
    """Returns True if `due` is reached. Reads the clock only if nothing but a time can make it so."""
    if run >= due.run or global_step >= due.global_step:
        return True
    return due.time != HUGE_VAL and reached(due.time)


cdef class Scheduled:
    cdef fs_due due

    cpdef due_at_run(self, object run)
    cpdef due_at_step(self, object global_step)
    cpdef due_at_time(self, double time)
    cpdef due_every_run(self)
    cpdef never_due(self)


@final
cdef class ScheduleTable:
    cdef readonly tuple entries
    cdef fs_due* dues
    cdef fs_due earliest
    cdef uint64_t* changes
    cdef uint64_t changes_seen

    cdef int reload(self) except -1
