"""Due positions of hooks (a run, a global step or a time), and a table with the earliest of several positions."""

from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.number cimport PyIndex_Check, PyNumber_Index
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t

cdef extern from "fastsup/due.h":
    void fs_due_clear(fs_due* due) nogil
    int fs_due_table_init(fs_due_table* table, size_t n, const uint64_t* changes)
    void fs_due_table_free(fs_due_table* table)
    void fs_due_table_reload(fs_due_table* table)

# Counts changes that schedules depend on: due positions, timers, replaced methods, the program's recorder. A loop keeps
# the last count that it read, and reads the schedules again when the count has changed. The GIL guards the count.
cdef uint64_t change_count = 0


cdef uint64_t* changes() noexcept:
    return &change_count


cdef int64_t position(str name, object steps) except? -1:
    """Clips a number of runs or steps to 64 bits. A larger number is never reached, a smaller number always is."""
    cdef int overflow = 0
    if not PyIndex_Check(steps):
        raise TypeError(f"{name} must be an integer, got {steps!r}.")
    cdef int64_t fits = PyLong_AsLongLongAndOverflow(PyNumber_Index(steps), &overflow)
    if overflow:
        return INT64_MAX if overflow > 0 else INT64_MIN
    return fits


cdef double number_of_seconds(object time) except? -1:
    """Converts a time in seconds, which may be any number."""
    if not (hasattr(time, "__float__") or hasattr(time, "__index__")):
        raise TypeError(f"time must be a number of seconds since the epoch, got {time!r}.")
    return time


cdef class Scheduled:
    """An object that is due at a run, at a global step or at a time. If several are set, the first one reached counts.

    Once due, the object stays due until its positions are changed.
    """

    def __cinit__(self):
        fs_due_clear(&self.due)

    @property
    def next_run(self):
        """Number of the run in which it is due, counted from 0, or None."""
        return None if self.due.run == FS_DUE_NEVER else self.due.run

    @property
    def next_step(self):
        """Global step at which it is due (the value after the run), or None."""
        return None if self.due.global_step == FS_DUE_NEVER else self.due.global_step

    @property
    def next_time(self):
        """Time at which it is due, in seconds since the epoch, or None."""
        return None if self.due.time == HUGE_VAL else self.due.time

    cpdef due_at_run(self, object run):
        """Makes it due in a run, and in every later run.

        Args:
          run: number of the run, counted from 0.

        Raises:
          TypeError: If `run` isn't an integer.
        """
        global change_count
        self.due.run = position("run", run)
        change_count += 1

    cpdef due_at_step(self, object global_step):
        """Makes it due in the run after which the global step has this value, and in every later run.

        Args:
          global_step: the value.

        Raises:
          TypeError: If `global_step` isn't an integer.
        """
        global change_count
        self.due.global_step = position("global_step", global_step)
        change_count += 1

    cpdef due_at_time(self, object time):
        """Makes it due from a time on.

        Args:
          time: seconds since the epoch.

        Raises:
          TypeError: If `time` isn't a number.
          ValueError: If `time` is NaN.
        """
        global change_count
        cdef double due = number_of_seconds(time)
        if due != due:
            raise ValueError("time must be a number of seconds since the epoch, got nan.")
        self.due.time = due
        change_count += 1

    cpdef due_every_run(self):
        """Makes it due in every run."""
        self.due_at_run(0)

    def reschedule(self, *, at_step=None, at_time=None, at_run=None, every_run=False):
        """Replaces all due positions. Without arguments, the object is never due.

        Args:
          at_step: as for `due_at_step`.
          at_time: as for `due_at_time`.
          at_run: as for `due_at_run`.
          every_run: whether it is due in every run.
        """
        self.never_due()
        if at_step is not None:
            self.due_at_step(at_step)
        if at_time is not None:
            self.due_at_time(at_time)
        if at_run is not None:
            self.due_at_run(at_run)
        if every_run:
            self.due_every_run()

    cpdef never_due(self):
        """Makes it never due, until another method changes that."""
        global change_count
        fs_due_clear(&self.due)
        change_count += 1


cdef class ScheduleTable:
    """The earliest due position of several `Scheduled`. A step with no due entry costs the same for any number of
    entries.

    Args:
      entries: the `Scheduled` objects.

    Raises:
      TypeError: If an entry isn't a `Scheduled`.
    """

    def __cinit__(self, entries):
        cdef Py_ssize_t i
        self.entries = tuple(entries)
        for entry in self.entries:
            if not isinstance(entry, Scheduled):
                raise TypeError(f"hooks must be fastsup.core.Hook objects, got {entry!r}")
        if fs_due_table_init(&self.table, len(self.entries), &change_count) != 0:
            raise MemoryError()
        for i in range(len(self.entries)):
            self.table.dues[i] = &(<Scheduled> self.entries[i]).due
        self.reload()

    def __dealloc__(self):
        fs_due_table_free(&self.table)

    cdef int reload(self) except -1:
        """Reads the due positions of all entries again."""
        fs_due_table_reload(&self.table)
        return 0
