from cython cimport final
from libc.stdint cimport int64_t, uint64_t

cdef extern from "due.h":
    const int64_t FS_DUE_NEVER
    ctypedef struct fs_due:
        int64_t run
        int64_t global_step
        double time
    void fs_due_clear(fs_due* due) nogil
    bint fs_due_reached(const fs_due* due, int64_t run, int64_t global_step, double now) nogil
    fs_due fs_due_earliest(const fs_due* entries, size_t n) nogil


cdef uint64_t* changes() noexcept


cdef class Scheduled:
    cdef fs_due due


@final
cdef class ScheduleTable:
    cdef readonly tuple entries
    cdef fs_due* dues
    cdef fs_due earliest
    cdef uint64_t* changes
    cdef uint64_t changes_seen

    cdef int reload(self) except -1
    cdef bint is_due(self, int64_t run, int64_t global_step) except -1
    cdef bint entry_is_due(self, Py_ssize_t i, int64_t run, int64_t global_step) except -1
