from libc.stdint cimport int64_t

from fastsup.core.recorded cimport Cell
from fastsup.core.spans cimport fs_track
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.dispatch cimport Dispatch, Look
from fastsup.train.recorded_session cimport RecordedSession


cdef class Hooked(RecordedSession):
    cdef public bint _should_stop
    # Our session, and the schedules of the hooks around it; None where the session is somebody else's.
    cdef object session_seen
    cdef SessionRunner runner
    cdef Dispatch dispatch

    # (result,) of the last step of a loop that has raised.
    cdef tuple loop_result
    # Of the run that has failed, for hooks that are told of it.
    cdef object context

    cdef bint has_schedules(self) except -1
    cdef object run_unstopped(self, object fetches, object feed_dict, object options, object run_metadata)
    cdef object run_recorded(self, object fetches, object feed_dict, object options, object run_metadata)
    cdef object run_on(self, fs_track* track, object fetches, object feed_dict, object options, object run_metadata)
    cdef bint fetches_more(self, Look* look) except -1
    cdef bint is_compiled(self, Plan plan, bint watched) noexcept
    cdef object run_leaving_out(self, Look* look, Plan plan, object fetches, object feed_dict)
    cdef object run_leaving_out_held(self, Look* look, Plan plan, object fetches, object feed_dict)
    cdef Plan plan_with(self, Plan plan, object fetches, list extra, object feed_dict)
    cdef object loop_recorded(
        self, Look* look, Plan plan, list watching, object fetches, int64_t steps, int64_t* left, object stop_event
    )
    cdef object loop_while_idle(
        self, Look* look, fs_track* track, Cell runtime, Plan plan, list watching, object fetches, int64_t steps,
        int64_t* left, object stop_event
    )
    cdef int call_left_out(self, Look* look, object fetches, object feed_dict, object rejected) except -1
    cdef object run_calling(
        self, Look* look, list called, object fetches, object feed_dict, object options, object run_metadata
    )
