from cython cimport final

from fastsup.runtime.runner cimport StepCount


@final
cdef class StepRequest:
    # list, tuple or dict; None for the step alone.
    cdef object kind
    cdef list keys
    # For each fetch whether it is the step.
    cdef list is_step
    # What has to be fetched; None if there is nothing.
    cdef readonly list rest

    cdef object build(self, object step, list values)


cdef StepRequest request_for_step(StepCount count, object fetches, int fed)
