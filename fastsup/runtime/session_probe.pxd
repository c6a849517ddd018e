from libc.stdint cimport int64_t

from fastsup.core.recorder cimport Recorder
from fastsup.core.spans cimport fs_scope


cdef class SessionProbe:
    # The address that says who records the session: of `own_recorder`, or of the program's recorder. NULL there: nobody.
    cdef void** recorded_by
    cdef void* own_recorder
    cdef object recorder
    # Who has opened the session: a `SessionOrigin`, or None.
    cdef public object opened
    # The recorder that knows the session, or None, and the session's number there. Changed by the thread that begins a step.
    cdef Recorder known_to
    cdef int64_t caller
    # Recorded steps under way in any thread, and whether `known_to` is to forget the session after the last of them.
    cdef int steps_under_way
    cdef bint forgets_later

    cdef object begin_step(self, fs_scope* scope, object session)
    cdef int end_step(self, fs_scope* scope, object held) except -1
    cdef int introduce(self, Recorder recorder, object session) except -1
    cdef int forget_now(self) except -1


cdef inline object begin_recorded(SessionProbe probe, fs_scope* scope, object session):
    """Begins a step of the profile, or none: `scope.trace` is NULL then. The result is for `end_recorded`, which also follows
    an error of this function, with None."""
    scope.trace = NULL
    if probe.recorded_by[0] is NULL:
        return None
    return probe.begin_step(scope, session)


cdef inline int end_recorded(SessionProbe probe, fs_scope* scope, object held) except -1:
    """Ends the step, on every way out."""
    if scope.trace is not NULL:
        probe.end_step(scope, held)
    return 0
