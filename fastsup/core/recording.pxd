from libc.stdint cimport int32_t, int64_t

from fastsup.core.spans cimport fs_span_stats, fs_span_event, fs_span_log, fs_thread_trace


cdef class SessionStats


cdef class SpanStats:
    cdef fs_span_stats c
    cdef readonly str owner
    cdef readonly str phase
    # Which fetches of the session, or which listener of the hook; "" where there is nothing to tell apart.
    cdef readonly str detail
    cdef SessionStats of


# What is recorded of the sessions that one place in the program opens, one after the other or at the same time.
cdef class SessionStats:
    cdef readonly int32_t index
    cdef readonly object opened
    cdef readonly int64_t sessions
    # The callback that was under way when one of them was first run: its stats; or None.
    cdef SpanStats within
    # The names of the hooks that are there now.
    cdef set names
    # The classes of hooks that are TensorFlow's own.
    cdef set foreign
    cdef SpanStats feed_stats
    cdef SpanStats fetch_stats
    cdef SpanStats other_runtime
    # The fetches whose times are kept after the end of a session.
    cdef set kept_fetches
    # By fetches and feeds: in which executor they have run.
    cdef dict executors
    cdef set asked_executors
    cdef int64_t operations_added


cdef class Recording:
    # What every step looks at: the traces of all threads, the one used last in front.
    cdef fs_thread_trace* traces
    cdef fs_span_log* log
    cdef list all_stats
    cdef list sessions
    # By the number of a session that is there: where it is recorded, what tells its executors, and its graph's size.
    cdef dict callers
    # What the runtime took for the same fetches of a caller, by the hooks that had fetches of their own in the run.
    cdef dict all_runtime_stats
    # By hook, with its session: what its fetches cost in sessions that are gone.
    cdef dict past_estimates
    cdef dict values_fetched
    cdef public double value_ns
    cdef double cost_beside_span
    cdef double cost_beside_step

    cdef int flush(self) except -1
    cdef int note_facts(self, int64_t caller) except -1
    cdef int add_estimates(self, dict found, dict all_runtime_stats) except -1
    cdef int32_t threads(self) noexcept
    cdef dict event(self, const fs_span_event* event)
