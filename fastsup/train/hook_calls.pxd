from cython cimport final

from fastsup.core.spans cimport fs_track
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.dispatch cimport Dispatch, Look
from fastsup.train.recorded_session cimport RecordedSession


@final
cdef class HookCalls:
    # Where it is run. In a session of somebody else's making there is neither of the others.
    cdef RecordedSession session
    cdef SessionRunner runner
    cdef Dispatch dispatch
    cdef fs_track* track
    # Of which stop_requested is to be asked afterwards, and what hooks are told of a failure with.
    cdef object context

    # As the caller has it, then with what the hooks have added; and what they feed.
    cdef object fetches
    cdef object feed_dict
    cdef dict hook_feeds
    cdef object options
    cdef object metadata
    cdef bint has_options

    # The hooks that are called, and for each of them what it wants, or None; which of that holds the global step, or None;
    # and what it gets.
    cdef list called
    cdef list wanted
    cdef list step_requests
    cdef list results
    # The global step, where one wants it and it is known without the run.
    cdef object step

    # What is fetched: for the caller, and then for each of `asking`.
    cdef list requests
    cdef list asking

    cdef object run(self, Look* look)
    cdef int ask(self) except -1
    cdef int find_step(self, Look* look) except -1
    cdef int collect_requests(self, Look* look) except -1
    cdef list fetch(self)
    cdef int give_results(self, list values) except -1
    cdef int tell(self, Look* look) except -1


cdef HookCalls calls_around(
    RecordedSession session, SessionRunner runner, Dispatch dispatch, list called, object fetches, object feed_dict,
    object options, object run_metadata
)
cdef object call_left_out(
    RecordedSession session, Dispatch dispatch, Look* look, object fetches, object feed_dict, object rejected
)
