from libc.stdint cimport int64_t

from fastsup.core.recorder cimport Cell, Recorder, fs_track
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.dispatch cimport Dispatch
from fastsup.train.wrapped_sessions cimport Wrapped


cdef class Hooked(Wrapped):
    cdef public object _hooks
    cdef public bint _should_stop
    # Our session, and the schedules of the hooks around it; None where the session is somebody else's.
    cdef object session_seen
    cdef SessionRunner runner
    cdef Dispatch dispatch

    # What records the runs: the session's own, or where there is none, the one of the whole program.
    cdef Recorder recorder
    cdef void** program_recorder
    # The one that knows the hooks, and what takes back what it did to them.
    cdef Recorder known_to
    cdef object unwatch
    # For the fetches and the hooks that watch a fetch, seen last: where the runtime's time goes.
    cdef object watched_with
    cdef object watching_seen
    cdef Cell watched_cell

    # Of the run under way, for hooks that are told of an error.
    cdef object context

    cdef bint has_schedules(self) except -1
    cdef Recorder recorder_now(self)
    cdef fs_track* track_now(self) noexcept
    cdef int watch_hooks(self, Recorder recorder) except -1
    cdef object run_unstopped(self, object fetches, object feed_dict, object options, object run_metadata)
    cdef object run_recorded(self, object fetches, object feed_dict, object options, object run_metadata)
    cdef object run_on(self, fs_track* track, object fetches, object feed_dict, object options, object run_metadata)
    cdef bint may_go_on(self, int64_t steps, object stop_event) except -1
    cdef object loop_recorded(
        self, Recorder recorder, Plan plan, object fetches, int64_t steps, int64_t* left, object stop_event
    )
    cdef Cell cell_of_watched(self, Recorder recorder, object fetches)
    cdef Cell cell_of_asked(self, object fetches, list asked, list requests)
    cdef bint act(self, fs_track* track, object hook) except -1
    cdef object run_leaving_out(self, Plan plan, object fetches, object feed_dict)
    cdef object run_leaving_out_held(self, Plan plan, object fetches, object feed_dict)
    cdef object run_calling(self, list called, object fetches, object feed_dict, object options, object run_metadata)
    cdef object run_calling_held(
        self, list called, object fetches, object feed_dict, object options, object run_metadata
    )
    cdef int call_late(self, object hook, object run_context, object options, object metadata) except -1
