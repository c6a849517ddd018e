"""The probe of calls that are steps by themselves, in a loop of the program's own."""

import functools
import sys
import weakref

from fastsup.core.probe cimport fs_scope, probe_here

from fastsup.core.probe import RECORDS_METHOD, program_profiler_now
from fastsup.core.sessions import origin_of_call
from fastsup.profile.recording.recorder cimport Recorder
from fastsup.profile.recording.spans cimport fs_span_charge_to
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.recording.statistics cimport SpanStats, trace_of_this_thread

# The most places of calls whose probe is kept.
cdef Py_ssize_t MAX_PLACES = 64


cdef class CallProbe(RecorderProbe):
    """Records the calls of one function from one line of the program, each as a step."""

    cdef int setup_calls(self, object recorder, object origin, object session_info, str phase, str detail) except -1:
        """Begins to record.

        Args:
          recorder: the `Recorder`.
          origin: the `SessionOrigin` of the calls.
          session_info: as for `Recorder.new_caller`.
          phase: name of the phase that a call is.
          detail: which of several of that name it is, or "".
        """
        recorder.interrupt_here()
        self.setup(recorder, recorder.new_caller(origin, session_info), (), False)
        self.main_stats = self.recorder.stats_of(self.session, SESSION, phase, detail)
        self.main_stats.begins_steps = True
        return 0

    cdef object make(self, object function, tuple args, dict kwargs):
        """Makes a call, as a step."""
        cdef fs_scope scope
        self.begin(&scope)
        try:
            self.enter(self.main_stats)
            result = function(*args, **kwargs)
            self.called()
            self.leave()
        finally:
            self.end(&scope, True)
        return result

    cdef int called(self) except -1:
        """A call has returned: now it is known what it is to be charged to."""
        return 0

    cdef int charge_to(self, SpanStats stats) except -1:
        """Charges the call under way to other statistics."""
        fs_span_charge_to(trace_of_this_thread(self.recorder), &stats.c)
        return 0


def recorded_calls(method, str name not None, session_info_of):
    """A method of an object of another library's, each call of which is a step if nothing is recorded around it.

    Args:
      method: the method.
      name: its name.
      session_info_of: function of a weak reference to the object, and of the name, that returns what
        `Recorder.new_caller` takes as `session_info` returns.
    """
    # By the object's type and the place of the call. The code is kept: the id of one that is gone may become another's.
    cdef dict probes = {}

    @functools.wraps(method)
    def recorded(self, *args, **kwargs):
        cdef CallProbe probe
        recorder = program_profiler_now()
        if not isinstance(recorder, Recorder) or probe_here() is not None:
            return method(self, *args, **kwargs)
        frame = sys._getframe(0)
        key = (type(self), id(frame.f_code), frame.f_lineno)
        probe, _ = probes.get(key, (None, None))
        if probe is None or probe.recorder is not recorder:
            if len(probes) >= MAX_PLACES:
                probes.clear()
            probe = CallProbe.__new__(CallProbe)
            origin = origin_of_call(f"{type(self).__name__}.{name}", name, frame, "keras")
            info = functools.partial(session_info_of, weakref.ref(self), name)
            probe.setup_calls(recorder, origin, info, name, "")
            probes[key] = (probe, frame.f_code)
        return probe.make(method, (self, *args), kwargs)

    setattr(recorded, RECORDS_METHOD, method)
    return recorded
