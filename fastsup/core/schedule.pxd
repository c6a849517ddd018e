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
    ctypedef int (*fs_time_reached_fn)(double time) noexcept
    ctypedef struct fs_due_table:
        size_t n
        const fs_due** dues
        fs_due earliest
    int fs_due_reached(
        const fs_due* due, int64_t run, int64_t global_step, fs_time_reached_fn time_reached
    ) except -1
    bint fs_due_table_changed(const fs_due_table* table) noexcept


# Address of the count of changes to schedules. Add 1 after each change.
cdef uint64_t* changes() noexcept


cdef inline bint due_reached(const fs_due* due, int64_t run, int64_t global_step) except -1:
    """Returns True if `due` is reached, by the time of day."""
    return fs_due_reached(due, run, global_step, <fs_time_reached_fn> reached)


# Converts a time in seconds to a double. The message of a TypeError contains the value.
cdef double number_of_seconds(object time) except? -1


cdef class Scheduled:
    cdef fs_due due

    cpdef due_at_run(self, object run)
    cpdef due_at_step(self, object global_step)
    cpdef due_at_time(self, object time)
    cpdef due_every_run(self)
    cpdef never_due(self)


@final
cdef class ScheduleTable:
    cdef readonly tuple entries
    cdef fs_due_table table

    cdef int reload(self) except -1
