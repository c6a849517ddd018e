cdef extern from "spans.h":
    # A step under way. It is stored on the stack, or in the object, of the code that starts it.
    ctypedef struct fs_scope:
        fs_scope* next
        # The recorder's fs_thread_trace; NULL if nothing records the step.
        void* trace
        # The Probe of the step.
        void* probe


# A part of a step: the owner of the time between `enter` and `leave`.
cdef class Part:
    pass


cdef class Probe:
    # False for the probe of steps that nothing records.
    cdef readonly bint records
    # True if each step is marked for another profiler, so that no loop may run several steps in one call.
    cdef readonly bint marks_steps
    # None, or a function that waits until devices have finished a step's queued work, because a step function may
    # return earlier.
    cdef readonly object wait_for_devices
    # The session's own work: hook dispatch, and the conversion of feeds and of fetches.
    cdef Part dispatch
    cdef Part feed_conversion
    cdef Part fetch_conversion

    cdef int begin(self, fs_scope* scope) except -1
    cdef int end(self, fs_scope* scope, bint is_step) except -1
    cdef int next(self, Part part) except -1
    cdef int enter(self, Part part) except -1
    cdef int leave(self) except -1

    cdef Part run_part(self, object fetches, list hooks, list requests, bint with_step)
    cdef Part callback_part(self, object hook, bint before)


cdef class Profiler:
    pass


# Finds the probe of the steps of one session or loop.
cdef class ProbeFinder:
    # The address of the pointer to the active profiler: `own_pointer`, or the program's profiler. If that pointer is
    # NULL, nothing records.
    cdef void** profiler
    cdef void* own_pointer
    cdef Profiler own
    # The session's `SessionOrigin`, or None.
    cdef public object origin
    # The hooks that are called around the steps, or None.
    cdef object hooks
    # The profiler with which the session is registered, and the session's probe. Before the first recorded step: None
    # and `nothing`.
    cdef Profiler attached_to
    cdef Probe known
    cdef Probe nothing

    cdef Probe find(self, object session)


cdef inline Probe probe_of(ProbeFinder finder, object session):
    """Returns the probe of the next step. While no profiler records, this probe does nothing."""
    return finder.nothing if finder.profiler[0] is NULL else finder.find(session)


# The current steps of all threads in the process, newest first.
cdef fs_scope** open_scopes() noexcept
# The probe of this thread's current step; None outside a step.
cdef Probe probe_here()
# The address of the pointer to the program's profiler. If the pointer is NULL, no profiler is on.
cdef void** address_of_program_profiler() noexcept
# Sets the profiler of the whole program; None removes it.
cdef int set_program_profiler(Profiler profiler) except -1
