"""The link from a session with hooks to its profile: each callback is a span, and so is the runtime's part of a run."""

from fastsup.core.recording cimport SpanStats
from fastsup.core.recorder cimport Recorder, active_recorder
from fastsup.core.recording import SESSION
from fastsup.core.spans cimport fs_span_enter, fs_span_leave, fs_thread_trace
from fastsup.runtime.session_probe cimport SessionProbe
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.engine.recorded_hooks import count_values, prepare, watch


cdef class HooksProbe(SessionProbe):
    """Records the steps of a session and the callbacks of its hooks."""

    def set_hooks(self, hooks):
        """Says which hooks the session calls."""
        self.hooks = hooks

    cdef int introduce(self, Recorder recorder, object session) except -1:
        prepare(recorder)
        if self.known_to is recorder:
            return 0  # Another thread has come first.
        SessionProbe.introduce(self, recorder, session)
        recorder.interrupt_here()
        self.dispatch_stats = recorder.session_of(self.caller).dispatch_stats
        self.unwatch = watch(recorder, self.hooks, self.caller)
        self.watching_seen = None
        return 0

    cdef int forget_now(self) except -1:
        cdef Recorder recorder = self.known_to
        if recorder is not None:
            if self.unwatch is not None:
                self.unwatch()
            recorder.forget(self.hooks, self.caller)
            recorder.interrupt_here()
            self.known_to = self.unwatch = None
        return 0

    cdef tuple session_key(self, Recorder recorder):
        """The key of the session itself among the hooks: whoever fetches the global step for hooks that were skipped."""
        return recorder.session_of(self.caller).index, SESSION

    cdef SpanStats stats_of_watched(self, HookScheduler scheduler, object fetches, bint with_step):
        """The statistics of the runtime's time in a run for these fetches, those that hooks watch, and perhaps the step."""
        cdef Recorder recorder = self.known_to if self.known_to is not None else active_recorder()
        cdef list keys = []
        for hook in scheduler.hooks.watching:
            key = recorder.stats_of_hook(hook).key
            keys.append(key)
            recorder.note_values(key, 1)
        if with_step:
            keys.append(self.session_key(recorder))
        self.watched_stats = recorder.runtime_stats(self.caller, fetches, tuple(keys))
        self.watching_seen = scheduler.hooks.watching
        self.watched_with = fetches
        self.watched_with_step = with_step
        return self.watched_stats

    cdef SpanStats stats_of_requests(self, object fetches, list hooks, list requests, bint with_step):
        """The statistics of the runtime's time in a run for these fetches, those that hooks request, and perhaps the step.

        Args:
          fetches: the caller's fetches.
          hooks: the hooks called in the run.
          requests: for each hook, the fetches that the run makes for it, or None.
          with_step: whether the run fetches the global step for hooks that were skipped.
        """
        cdef Recorder recorder = active_recorder()
        cdef list keys = []
        cdef Py_ssize_t i
        for i in range(len(hooks)):
            if requests[i] is not None:
                key = recorder.stats_of_hook(hooks[i]).key
                keys.append(key)
                if key not in recorder.values_fetched:
                    recorder.note_values(key, count_values(requests[i]))
        if with_step:
            keys.append(self.session_key(recorder))
        return recorder.runtime_stats(self.caller, fetches, tuple(keys))

    cdef object call_before_run(self, fs_thread_trace* trace, object hook, object context):
        if trace is NULL:
            return hook.before_run(context)
        # An error leaves the span open: the end of the step closes it.
        fs_span_enter(trace, &active_recorder().stats_of_hook(hook).before_run.c)
        request = hook.before_run(context)
        fs_span_leave(trace)
        return request

    cdef int call_after_run(self, fs_thread_trace* trace, object hook, object context, object values) except -1:
        if trace is NULL:
            hook.after_run(context, values)
            return 0
        fs_span_enter(trace, &active_recorder().stats_of_hook(hook).after_run.c)
        hook.after_run(context, values)
        fs_span_leave(trace)
        return 0
