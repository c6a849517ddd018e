"""The link from a session to the profile that records it. A session without a profile pays one test a step for it."""

import weakref

from cpython.object cimport PyObject

from fastsup.core.recorder cimport Recorder, begin_scope, program_wide
from fastsup.core.recorder import recorder_of
from fastsup.core.spans cimport fs_scope, fs_scope_end
from fastsup.runtime.interpreter_end import uninterrupted

# The recorder of sessions that aren't to be recorded.
cdef void* no_recorder = NULL


def session_info_of(session):
    """A function that describes a session to a recorder, and doesn't keep the session alive.

    Args:
      session: a session of any class.

    Returns:
      A function without arguments. It returns a dictionary: `asked`, the session's executor mode; `plans`, a list of
      dictionaries with fetches, feeds, executor, on_trial and seconds; `operations`, the number of operations in the
      graph. The dictionary is empty for a session that is gone, or isn't a `fastsup.Session`.
    """
    from fastsup.runtime.runner import SessionRunner  # which has a probe

    if not isinstance(session, SessionRunner):
        return dict
    reference = weakref.ref(session)

    def session_info():
        session = reference()
        if session is None:
            return {}
        plans = [plan._asdict() for plan in session.executor_info()]
        with uninterrupted:
            operations = session.graph.version
        return {"asked": session.executor, "plans": plans, "operations": operations}

    return session_info


cdef class SessionProbe:
    """Records the steps of one session, where a profile is recorded."""

    def __cinit__(self):
        self.recorded_by = &no_recorder

    def record(self, profiler):
        """Records every step from now on.

        Args:
          profiler: a `HookProfiler`; or None, for the one that is on for the whole program, whenever one is.
        """
        replaced = self.recorder  # Held until the pointers to it are replaced.
        self.recorder = recorder_of(profiler)
        self.own_recorder = <PyObject*> self.recorder
        self.recorded_by = program_wide() if profiler is None else &self.own_recorder
        del replaced

    def forget(self):
        """Lets the recorder forget the session: now, or after the steps under way."""
        if self.steps_under_way > 0:
            self.forgets_later = True
        else:
            self.forget_now()

    cdef object begin_step(self, fs_scope* scope, object session):
        """Begins a step. Returns the objects that the step needs: the recorder, and its step marker if there is one."""
        cdef Recorder recorder = <Recorder> self.recorded_by[0]
        if recorder is not self.known_to:
            self.introduce(recorder, session)
        begin_scope(scope, recorder, True, self.caller)
        self.steps_under_way += 1
        if not recorder.step_markers:
            return recorder
        marker = recorder.step_marker()
        marker.__enter__()
        return recorder, marker

    cdef int end_step(self, fs_scope* scope, object held) except -1:
        fs_scope_end(scope)
        self.steps_under_way -= 1
        if self.forgets_later and self.steps_under_way == 0:
            self.forgets_later = False
            self.forget_now()
        if type(held) is tuple:
            (<tuple> held)[1].__exit__(None, None, None)
        return 0

    cdef int introduce(self, Recorder recorder, object session) except -1:
        """Makes the session known to a recorder."""
        self.forget_now()
        self.known_to = recorder
        self.caller = recorder.new_caller(self.opened, session_info_of(session))
        return 0

    cdef int forget_now(self) except -1:
        if self.known_to is not None:
            self.known_to.forget((), self.caller)
            self.known_to = None
        return 0
