"""The probe of a session or loop that a recorder records."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from fastsup.core.probe import empty_context
from fastsup.core.probe cimport Part, Probe, fs_scope, probe_here
from fastsup.profile.recording.span_context import Span
from fastsup.profile.recording.span_registry cimport HookStats, SpanRegistry
from fastsup.profile.recording.spans cimport (
    FS_STEP, fs_scope_begin, fs_scope_end, fs_span_enter, fs_span_enter_first, fs_span_leave, fs_span_leave_last,
    fs_step_next, fs_step_uncount, fs_thread_trace, fs_trace_expand
)
from fastsup.profile.recording.statistics import SESSION
from fastsup.profile.recording.statistics cimport SpanStats, trace_of_this_thread


def count_values(fetches):
    """Returns the number of values in a hook's fetches.

    Args:
      fetches: a tensor, or nested lists, tuples and dictionaries of tensors. Operations have no value.
    """
    if isinstance(fetches, dict):
        return sum(map(count_values, fetches.values()))
    if isinstance(fetches, (list, tuple)):
        return sum(map(count_values, fetches))
    # Of all that can be fetched, only operations are nodes.
    return 0 if hasattr(fetches, "node_def") else 1


cdef RecorderProbe new_recorder_probe(SpanRegistry recorder, int64_t caller, object hooks, bint is_loop):
    cdef RecorderProbe probe = RecorderProbe.__new__(RecorderProbe)
    probe.setup(recorder, caller, () if hooks is None else hooks, is_loop)
    return probe


cdef RecorderProbe recorded_here():
    cdef Probe probe = probe_here()
    return <RecorderProbe> probe if isinstance(probe, RecorderProbe) else None


cdef RecorderProbe probe_within(SpanRegistry recorder):
    cdef RecorderProbe probe = recorded_here()
    return probe if probe is not None and probe.recorder is recorder else None


cdef class RecorderProbe(Probe):
    """What a recorder is told of a session or loop. Made by `Recorder.new_probe`."""

    cdef int setup(self, SpanRegistry recorder, int64_t caller, object hooks, bint is_loop) except -1:
        """Begins to record a session or loop. Arguments as for `new_recorder_probe`."""
        self.recorder = recorder
        self.caller = caller
        self.hooks = hooks
        self.is_loop = is_loop
        self.session = recorder.session_of(caller)
        self.records = True
        self.marks_steps = recorder.step_markers
        self.markers = {}
        self.batch_phases = {}
        self.dispatch = self.session.dispatch_stats
        self.feed_conversion = self.session.feed_stats
        self.fetch_conversion = self.session.fetch_stats
        return 0

    cdef fs_thread_trace* trace(self) except NULL:
        """The trace of this thread, ready to be read."""
        cdef fs_thread_trace* trace = trace_of_this_thread(self.recorder)
        fs_trace_expand(trace)
        return trace

    cdef SpanStats stats_of_phase(self, str phase):
        return self.recorder.stats_of(self.session, SESSION, phase, "")

    cdef object call(self, SpanStats stats, object function, tuple args, dict kwargs):
        """Calls a function in a span."""
        cdef fs_thread_trace* trace = trace_of_this_thread(self.recorder)
        fs_span_enter(trace, &stats.c)
        try:
            return function(*args, **kwargs)
        finally:
            fs_span_leave(trace)

    cdef int begin(self, fs_scope* scope) except -1:
        fs_scope_begin(scope, trace_of_this_thread(self.recorder), <PyObject*> self, FS_STEP)
        self.steps_under_way += 1
        if self.marks_steps:
            self.begin_marker(<size_t> scope)
        return 0

    cdef int begin_marker(self, size_t scope) except -1:
        try:
            marker = self.recorder.step_marker()
            marker.__enter__()
            self.markers[scope] = marker
        except BaseException:
            self.end(<fs_scope*> scope, True)
            raise
        return 0

    cdef int end(self, fs_scope* scope, bint is_step) except -1:
        if not is_step:
            fs_step_uncount(<fs_thread_trace*> scope.trace)
        fs_scope_end(scope)
        self.steps_under_way -= 1
        if self.closes_later and self.steps_under_way == 0:
            self.closes_later = False
            self.close_now()
        if self.marks_steps:
            marker = self.markers.pop(<size_t> scope, None)
            if marker is not None:
                marker.__exit__(None, None, None)
        return 0

    cdef int next(self, Part part) except -1:
        fs_step_next(trace_of_this_thread(self.recorder), &(<SpanStats> part).c)
        return 0

    cdef int enter(self, Part part) except -1:
        cdef SpanStats stats = part
        if stats.begins_steps:
            fs_span_enter_first(trace_of_this_thread(self.recorder), &stats.c)
        else:
            fs_span_enter(trace_of_this_thread(self.recorder), &stats.c)
        return 0

    cdef int leave(self) except -1:
        fs_span_leave_last(trace_of_this_thread(self.recorder))
        return 0

    cdef Part run_part(self, object fetches, list hooks, list requests, bint with_step):
        cdef SpanRegistry recorder = self.recorder
        cdef list keys = []
        cdef Py_ssize_t i
        if (
            requests is None
            and self.last_part is not None
            and fetches is self.last_fetches
            and hooks is self.last_hooks
            and with_step == self.last_with_step
        ):
            return self.last_part
        for i in range(0 if hooks is None else len(hooks)):
            if requests is not None and requests[i] is None:
                continue
            key = recorder.stats_of_hook(hooks[i]).key
            keys.append(key)
            if requests is None:
                recorder.note_values(key, 1)
            elif key not in recorder.values_fetched:
                recorder.note_values(key, count_values(requests[i]))
        if with_step:
            # The session itself fetches it for hooks that were skipped, as one of the hooks.
            keys.append((self.session.index, SESSION))
        stats = recorder.runtime_stats(self.caller, fetches, tuple(keys))
        if requests is None:
            self.last_part = stats
            self.last_fetches = fetches
            self.last_hooks = hooks
            self.last_with_step = with_step
        return stats

    cdef Part callback_part(self, object hook, bint before):
        cdef HookStats known = self.recorder.stats_of_hook(hook)
        if self.is_loop:
            return self.recorder.stats_of(known.session, known.name, "after_step", "")
        return known.before_run if before else known.after_run

    def beside_steps(self, hook, phase):
        cdef HookStats known = self.recorder.stats_of_hook(hook)
        return Span(self.recorder, self, self.recorder.stats_of(known.session, known.name, phase, ""))

    def within_callback(self, phase, detail):
        cdef SpanStats around = self.recorder.enclosing_span()
        if around is None or around.owner == SESSION:
            return empty_context
        return Span(self.recorder, self, self.recorder.stats_of(around.session, around.owner, phase, detail))

    def within_session(self, phase):
        cdef fs_thread_trace* trace = self.trace()
        if trace.muted or trace.depth > 0:
            return empty_context
        return self.recorder.session_span(phase)

    def close(self):
        if self.steps_under_way > 0:
            self.closes_later = True
        else:
            self.close_now()

    cdef int close_now(self) except -1:
        if self.unwatch is not None:
            self.unwatch()
            self.unwatch = None
        self.recorder.forget(self.hooks, self.caller)
        self.recorder.interrupt_here()
        self.last_part = self.last_fetches = self.last_hooks = None
        return 0
