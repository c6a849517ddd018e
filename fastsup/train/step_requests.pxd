from cython cimport final

from fastsup.runtime.step_count cimport StepCount


@final
cdef class StepRequest:
    # list, tuple or dict; None for the step alone.
    cdef object kind
    cdef list keys
    # For each fetch whether it is the step.
    cdef list is_step
    # What has to be fetched: nothing, one fetch, or a list of them.
    cdef readonly object rest
    cdef bint rest_is_one

    cdef object build(self, object step, object values)


cdef StepRequest request_for_step(StepCount count, object fetches)
