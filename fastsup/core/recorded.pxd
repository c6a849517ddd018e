from libc.stdint cimport int32_t

from fastsup.core.spans cimport fs_cell, fs_span_event, fs_span_log, fs_track


cdef class Cell:
    cdef fs_cell c
    cdef readonly str owner
    cdef readonly str phase


cdef class Recorded:
    # What every step looks at: the tracks of all threads, the one used last in front.
    cdef fs_track* tracks
    cdef fs_span_log* log
    cdef list cells
    # What the runtime took for the same fetches of a caller, by the hooks that had fetches of their own in the run.
    cdef dict runtime_cells
    # By hook: what its fetches cost in sessions that are gone.
    cdef dict past_estimates
    cdef dict values_fetched
    cdef public double value_ns
    cdef double cost_beside_span
    cdef double cost_beside_step

    cdef int settle(self) except -1
    cdef int add_estimates(self, dict found, dict runtime_cells) except -1
    cdef int32_t threads(self) noexcept
    cdef dict event(self, const fs_span_event* event)
