"""When things are next due, and a table that knows the earliest of them."""

from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.number cimport PyNumber_Index
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t
from libc.stdlib cimport free, malloc

cdef extern from "fastsup/due.h":
    void fs_due_clear(fs_due* due) nogil
    fs_due fs_due_earliest(const fs_due* entries, size_t n) nogil

# Moves whenever something that a schedule was computed from may have changed: a due position, a timer, a method
# replaced on one hook. A loop compares it with the value it saw last; only when it moved are schedules read again.
cdef uint64_t change_count = 0


cdef uint64_t* changes() noexcept:
    return &change_count


cdef int64_t position(object steps) except? -1:
    """A number of runs or steps. One that doesn't fit into 64 bits is never reached, or has been always."""
    cdef int overflow = 0
    cdef int64_t fits = PyLong_AsLongLongAndOverflow(PyNumber_Index(steps), &overflow)
    if overflow:
        return INT64_MAX if overflow > 0 else INT64_MIN
    return fits


cdef class Scheduled:
    """Something that is due at a run, at a global step, at a time, or at the first of these that comes."""

    def __cinit__(self):
        fs_due_clear(&self.due)

    @property
    def next_run(self):
        """Number of the run it is due in, counted from 0, or None."""
        return None if self.due.run == FS_DUE_NEVER else self.due.run

    @property
    def next_step(self):
        """Global step it is due at (the value after the run), or None."""
        return None if self.due.global_step == FS_DUE_NEVER else self.due.global_step

    @property
    def next_time(self):
        """Time it is due at, in seconds since the epoch, or None."""
        return None if self.due.time == HUGE_VAL else self.due.time

    cpdef due_at_run(self, object run):
        """Makes it due in the run with this number, counted from 0, and in every later one until this is changed."""
        global change_count
        self.due.run = position(run)
        change_count += 1

    cpdef due_at_step(self, object global_step):
        """Makes it due in the run that takes the global step to this value, and in every later one."""
        global change_count
        self.due.global_step = position(global_step)
        change_count += 1

    cpdef due_at_time(self, double time):
        """Makes it due once the clock reads `time` (seconds since the epoch)."""
        global change_count
        self.due.time = time
        change_count += 1

    cpdef due_every_run(self):
        """Makes it due in every run."""
        self.due_at_run(0)

    cpdef never_due(self):
        """Takes every due position back."""
        global change_count
        fs_due_clear(&self.due)
        change_count += 1


cdef class ScheduleTable:
    """The earliest due position of many `Scheduled`: one that is idle costs nothing, nor do a thousand."""

    def __cinit__(self, entries):
        self.entries = tuple(entries)
        for entry in self.entries:
            if not isinstance(entry, Scheduled):
                raise TypeError(f"hooks must be fastsup.core.Hook objects, got {entry!r}")
        self.dues = <fs_due*> malloc(max(len(self.entries), 1) * sizeof(fs_due))
        if self.dues is NULL:
            raise MemoryError()
        self.changes = &change_count
        self.reload()

    def __dealloc__(self):
        free(self.dues)

    cdef int reload(self) except -1:
        """Reads every entry's due position again."""
        cdef Py_ssize_t i
        cdef Py_ssize_t n = len(self.entries)
        for i in range(n):
            self.dues[i] = (<Scheduled> self.entries[i]).due
        self.earliest = fs_due_earliest(self.dues, n)
        self.changes_seen = self.changes[0]
        return 0
