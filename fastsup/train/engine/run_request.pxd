from cython cimport final
from libc.stdint cimport int64_t

from fastsup.core.probe cimport Probe, fs_scope
from fastsup.train.scheduler.run_snapshot cimport RunSnapshot


# Belongs to the thread that makes the runs.
@final
cdef class RunRequest:
    # The caller's arguments.
    cdef object fetches
    cdef object feed_dict
    cdef object options
    cdef object run_metadata

    # Of a loop: the steps that are left, counted down; the coordinator's event that ends the loop, or None, which has it ask
    # after each step; and (result,) of the last step that ended well before one that raised, or None.
    cdef bint in_loop
    cdef int64_t steps_left
    cdef object stop_event
    cdef tuple last_result

    # Who can make several runs in one call, or None; the most runs to make without asking it; how often in a row that had to
    # be left, and the steps until it is asked again.
    cdef object several
    cdef int64_t most_steps
    cdef int times_refused
    cdef int64_t steps_until_asked

    # The run that is made now: its snapshot, how many runs like it follow at once (1 outside a loop), and who is told of
    # the step.
    cdef RunSnapshot snapshot
    cdef int64_t steps
    cdef Probe probe
    cdef fs_scope scope


cdef RunRequest new_request(object fetches, object feed_dict, object options, object run_metadata)
