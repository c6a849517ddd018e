"""A session with hooks as a profile sees it: who records its runs, and where the time of each part goes."""

from cpython.object cimport PyObject

from fastsup.core.recording cimport SpanStats
from fastsup.core.recorder cimport Recorder, active_recorder, active_trace, program_wide
from fastsup.core.recording import SESSION
from fastsup.core.recorder import recorder_of
from fastsup.core.spans cimport fs_span_enter, fs_span_leave, fs_thread_trace
from fastsup.runtime.session_facts import facts_of
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.session.recorded_hooks import count_values, prepare, watch
from fastsup.train.session.wrapped_sessions cimport Wrapped


cdef class RecordedSession(Wrapped):
    """A wrapped session with hooks, whose callbacks are spans of a profile where one is recorded.

    Args:
      sess: the session to run in.
      hooks: the hooks.
    """

    def __cinit__(self, *args, **kwargs):
        self.recorded_by = program_wide()

    def __init__(self, sess, hooks):
        Wrapped.__init__(self, sess)
        self._hooks = hooks

    def _record(self, profiler):
        """Records every run from now on.

        Args:
          profiler: a `HookProfiler`; or None, for the one that is on for the whole program, whenever one is.
        """
        self.recorder = recorder_of(profiler)
        self.own_recorder = <PyObject*> self.recorder
        self.recorded_by = program_wide() if profiler is None else &self.own_recorder

    def _forget_hooks(self):
        """Has the recorder let the hooks go: at once, or after the step that one of them closes the session in."""
        if self.under_way > 0:
            self.forgets_later = True
        else:
            self.forget_now()

    cdef int forget_now(self) except -1:
        if self.known_to is not None:
            if self.unwatch is not None:
                self.unwatch()
            self.known_to.forget(self._hooks, self.caller)
            self.known_to.interrupt_here()
            self.known_to = self.unwatch = None
        return 0

    cdef int recording_ended(self) except -1:
        """For the end of what has been counted in `under_way`."""
        self.under_way -= 1
        if self.forgets_later and self.under_way == 0:
            self.forgets_later = False
            self.forget_now()
        return 0

    cdef Recorder watching_recorder(self):
        """What records the session now, told of the hooks in their order. To be called where something does."""
        cdef Recorder recorder = <Recorder> self.recorded_by[0]
        if self.known_to is not recorder:
            prepare(recorder)
            if self.known_to is recorder:
                return recorder  # Another thread has come first.
            self.forget_now()
            recorder.interrupt_here()
            self.known_to = recorder
            self.caller = recorder.new_caller(self._opened, facts_of(self._sess))
            self.unwatch = watch(recorder, self._hooks, self.caller)
            self.watching_seen = None
        return recorder

    cdef fs_thread_trace* trace_now(self) noexcept:
        """Where the spans of the run under way go; NULL if it isn't recorded."""
        if self.recorded_by[0] is NULL:
            return NULL
        # A session of another recorder may be the one whose hook runs this one.
        return active_trace() if active_recorder() is self.known_to else NULL

    cdef SpanStats stats_of_watched(self, HookScheduler scheduler, object fetches, bint with_step):
        """Where the runtime's time goes in a run for these fetches, what hooks watch, and the step if that is fetched."""
        cdef Recorder recorder = self.known_to if self.known_to is not None else active_recorder()
        cdef list names = []
        for hook in scheduler.hooks.watching:
            key = recorder.stats_of_hook(hook).key
            names.append(key)
            recorder.note_values(key, 1)
        if with_step:
            names.append((recorder.session_of(self.caller).index, SESSION))
        self.watched_stats = recorder.runtime_stats(self.caller, fetches, tuple(names))
        self.watching_seen = scheduler.hooks.watching
        self.watched_with = fetches
        self.watched_with_step = with_step
        return self.watched_stats

    cdef SpanStats stats_of_asked(self, HookScheduler scheduler, object fetches, list asked, list requests):
        """Where the runtime's time goes in a run for these fetches and those of the hooks that have asked for some."""
        cdef Recorder recorder = active_recorder()
        cdef list names = []
        cdef Py_ssize_t i
        for i in range(len(asked)):
            if asked[i] is scheduler:
                # The global step, for hooks that were left out.
                names.append((recorder.session_of(self.caller).index, SESSION))
                continue
            key = recorder.stats_of_hook(asked[i]).key
            if key not in recorder.values_fetched:
                recorder.note_values(key, count_values(requests[i + 1]))
            names.append(key)
        return recorder.runtime_stats(self.caller, fetches, tuple(names))

    cdef object before_run(self, fs_thread_trace* trace, object hook, object context):
        if trace is NULL:
            return hook.before_run(context)
        # An error leaves the span open: the end of the step closes it.
        fs_span_enter(trace, &active_recorder().stats_of_hook(hook).before_run.c)
        request = hook.before_run(context)
        fs_span_leave(trace)
        return request

    cdef int after_run(self, fs_thread_trace* trace, object hook, object context, object values) except -1:
        if trace is NULL:
            hook.after_run(context, values)
            return 0
        fs_span_enter(trace, &active_recorder().stats_of_hook(hook).after_run.c)
        hook.after_run(context, values)
        fs_span_leave(trace)
        return 0
