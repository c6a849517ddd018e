from cython cimport final
from libc.stdint cimport int64_t, uint64_t

from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner

# What the global step is fetched by: TensorFlow's own read of it, and its variable. A run may be fed one without the other.
cdef enum:
    OWN_READ = 1
    VARIABLE = 2


@final
cdef class StepCount:
    cdef readonly SessionRunner session
    # None where the step can't be counted.
    cdef object variable
    # The tensor that TensorFlow's hooks read it from, and the variable where a fetch of that reads it as well.
    cdef object step_read
    cdef object variable_read
    # The tensors that it is fetched by, by OWN_READ and VARIABLE, and the operations that each needs, once asked for.
    cdef dict fetched_by
    cdef dict upstream
    # What to read it from, by a plan that is as good as the session's plans are the ones that it was found among.
    cdef object element_read
    cdef Plan plan
    cdef dict plans_seen
    cdef object numpy_type
    cdef int64_t base
    cdef uint64_t epoch_seen
    cdef bint known
    cdef bint ever_known
    cdef bint fetch_prepared

    cdef int prepare_fetch(self) except -1
    cdef bint know(self) except -1
    cdef object read(self)
    cdef int64_t value(self) noexcept
    cdef bint is_step(self, object fetch, int fed) noexcept
    cdef int fed_of(self, Plan plan) except -1
    cdef int is_step_fed(self, object feeds) except -1
    cdef bint can_be_fetched(self) except -1
    cdef object as_fetched(self, int64_t step)
