"""The session that calls the hooks around each run, and skips the hooks that have nothing to do in the run.

A step goes one of two ways:

    run_with_hooks              calls some hooks before and after the run (hooked_run.pyx)
    run_without_hooks_called    calls none in the run; in a loop, it makes as many runs as come before the next hook is due

After both, the after-run hooks that are due are called.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from fastsup.core.recording cimport SpanStats
from fastsup.core.spans cimport (
    fs_scope, fs_span_enter, fs_span_enter_first, fs_span_leave, fs_span_leave_last, fs_step_next, fs_thread_trace
)
from fastsup.runtime.fetches cimport FetchList
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.runtime.session_probe cimport begin_recorded, end_recorded
from fastsup.common.stop_signals cimport hold_signals, release_signals
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.scheduler.scheduled_hook cimport ScheduledHookBase
from fastsup.train.scheduler.step_view cimport FETCHED_STEP, StepView
from fastsup.train.session.hook_errors import report_error
from fastsup.train.session.hooked_run cimport HookedRun, new_hooked_run
from fastsup.train.session.hooks_probe cimport HooksProbe, runtime_stats
from fastsup.train.session.wrapped_sessions cimport Call, Wrapped, keep_last_result, new_call, still_open
from fastsup.train.session.wrapped_sessions import compiled_classes


cdef list rejected_by(list watching, list values, FetchList structure):
    """The hooks that don't accept the value of the fetch that they watch, each with the value; None if all accept.

    Args:
      watching: the hooks.
      values: the runtime's values of a run.
      structure: the structure of the run's fetches: the caller's, and then what each of the hooks watches.
    """
    cdef list rejected = None
    cdef Py_ssize_t i
    for i in range(len(watching)):
        value = structure.build_item(values, i + 1)
        if not (<ScheduledHookBase> watching[i]).accepts(value):
            rejected = rejected or []
            rejected.append((watching[i], value))
    return rejected


cdef class Hooked(Wrapped):
    """Hooked(sess, hooks)\n--\n
    A session that calls hooks around each run.

    Args:
      sess: the session to run in.
      hooks: iterable of `SessionRunHook`.
    """

    def __cinit__(self, *args, **kwargs):
        self.probe = HooksProbe()
        self.probe.record(None)

    def __init__(self, sess, hooks):
        Wrapped.__init__(self, sess)
        self._hooks = hooks
        self.probe.set_hooks(hooks)
        self._should_stop = False

    @property
    def _opened(self):
        """The `SessionOrigin` that says who has opened the session, or None."""
        return self.probe.opened

    @_opened.setter
    def _opened(self, opened):
        self.probe.opened = opened

    def _record(self, profiler):
        """Records every run from now on: see `SessionProbe.record`."""
        self.probe.record(profiler)

    def _check_stop(self):
        return self._should_stop

    def request_stop(self):
        """Makes `should_stop` true from now on."""
        self._should_stop = True

    def close(self):
        """Closes the session."""
        self._sync_hooks()
        for hook in list(self._hooks):
            if isinstance(hook, ScheduledHookBase):
                hook._before_close()
        self.probe.forget()
        Wrapped.close(self)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step, between the hooks' `before_run` and `after_run`.

        Raises:
          RuntimeError: a stop was requested before; or two hooks, or a hook and the caller, feed the same tensor.
        """
        cdef Call call = new_call(fetches, feed_dict, options, run_metadata, True)
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        return self.step(&call)

    def _sync_hooks(self):
        if self.scheduler is not None:
            self.scheduler.sync_all()

    cdef bint is_stopped(self) except -1:
        if self._should_stop:
            return True
        if self.scheduler is not None and self._sess is self.session_seen and not self._wrapped_is_stoppable:
            return False
        return Wrapped.is_stopped(self)

    cdef bint has_scheduler(self) except -1:
        """True if hooks may be skipped. A session that isn't a `fastsup.Session` may do anything in `run`: none is skipped."""
        cdef HookScheduler scheduler = None
        cdef SessionRunner runner = None
        if self._sess is not self.session_seen:
            # Not None: other threads may use the scheduler and the runner until their steps have ended.
            session = still_open(self._sess)
            if (
                isinstance(session, SessionRunner)
                and type(session).run is SessionRunner.run
                and "run" not in session.__dict__
            ):
                runner = session
                scheduler = HookScheduler(self._hooks, runner)
            # Another thread may have come first.
            if session is not self.session_seen:
                self.scheduler = scheduler
                self.runner = runner
                self.session_seen = session
        return self.scheduler is not None

    cdef object step(self, Call* call):
        cdef fs_scope scope
        try:
            if not call.hooks:
                return still_open(self._sess).run(<object> call.fetches, feed_dict=<object> call.feed_dict)
            if self.is_stopped():
                raise RuntimeError("Run called even after should_stop requested.")
            held = None
            try:
                held = begin_recorded(self.probe, &scope, still_open(self._sess))
                return self.run_steps(scope.trace, call)
            finally:
                end_recorded(self.probe, &scope, held)
        except Exception as error:
            report_error(self._hooks, None, error)
            raise

    cdef object run_steps(self, fs_thread_trace* trace, Call* call):
        """Runs one step; in a loop, as many as come before a hook is due or something else must be asked between two."""
        cdef Plan plan = None
        cdef StepView view
        cdef list hooks
        cdef int64_t steps = 1
        if not self.has_scheduler():
            return self.run_with_hooks(NULL, trace, list(self._hooks), call)
        if <object> call.options is None and <object> call.run_metadata is None:
            # Perhaps the run fetches more, for hooks: this plan isn't compiled yet.
            plan = self.runner.find_plan(<object> call.fetches, <object> call.feed_dict, False)
        self.scheduler.open_step(&view, plan)
        if plan is None:
            # The effect of such a run on the step isn't known. Every hook is called, whatever its schedule.
            return self.run_with_hooks(&view, trace, list(self._hooks), call)
        if self.scheduler.any_in_run(&view):
            hooks = self.scheduler.hooks_in_run(&view)
            if hooks:
                return self.run_with_hooks(&view, trace, hooks, call)
        elif call.steps_left is not NULL and call.stop_event is not NULL and not self.marks_steps(trace):
            steps = min(self.scheduler.idle_steps(&view), call.steps_left[0])
        return self.run_without_hooks_called(&view, trace, plan, steps, call)

    cdef bint marks_steps(self, fs_thread_trace* trace) noexcept:
        """True if each step of a loop is to be marked for another profiler."""
        return trace is not NULL and self.probe.known_to.step_markers

    cdef object run_with_hooks(self, StepView* view, fs_thread_trace* trace, list hooks, Call* call):
        """A run between the callbacks of hooks.

        Args:
          view: the view of the run, opened; NULL without a scheduler.
          trace: the thread's trace, or NULL if the run isn't recorded.
          hooks: the hooks to call in the run.
          call: the arguments of the run.
        """
        cdef bint held = hold_signals()
        cdef HookedRun run = None
        try:
            if trace is not NULL:
                fs_span_enter(trace, &self.probe.dispatch_stats.c)
            run = new_hooked_run(self.session_seen, self.runner, self.scheduler, self.probe, trace, call)
            run.hooks = hooks
            result = run.run(view)
            run.call_after_run(view, list(self._hooks))
            if trace is not NULL:
                # After an error, the end of the step leaves the span.
                fs_span_leave(trace)
            self._should_stop = self._should_stop or run.context.stop_requested
            if self.runner is not None:
                self.runner.runs_ended += 1
            if call.steps_left is not NULL:
                call.steps_left[0] -= 1
            return result
        except Exception as error:
            # This is where the context is known. An error is reported once.
            report_error(self._hooks, None if run is None else run.context, error)
            raise
        finally:
            release_signals(held)

    cdef object run_without_hooks_called(
        self, StepView* view, fs_thread_trace* trace, Plan plan, int64_t steps, Call* call
    ):
        """Runs that fetch what hooks watch, and the step if need be, and call no hook.

        Args:
          view: the view of the first run, opened.
          trace: the thread's trace, or NULL if the runs aren't recorded.
          plan: the plan of the caller's fetches, perhaps not compiled.
          steps: how many runs; 1 outside a loop.
          call: the arguments of the runs.
        """
        # Taken together, before another thread can change the hooks: the plan is for both lists.
        cdef list watching = self.scheduler.hooks.watching
        cdef list extra = self.scheduler.hooks.watched_fetches
        cdef tuple feeds = None
        # In a loop a signal may come between two steps. A single step has Python code between its run and its end.
        cdef bint held = steps == 1 and hold_signals()
        cdef SpanStats runtime
        try:
            if view.source == FETCHED_STEP:
                extra = [*extra, self.scheduler.step_read]
            if extra:
                plan = self.augmented_plan(plan, <object> call.fetches, extra, <object> call.feed_dict)
            elif plan.callable is None:
                plan = self.runner.find_plan(<object> call.fetches, <object> call.feed_dict)
            if plan is not None and plan.feeds:
                if trace is not NULL:
                    runtime = runtime_stats(self.probe, self.scheduler, <object> call.fetches, view.source == FETCHED_STEP)
                    fs_span_enter(trace, &runtime.session.feed_stats.c)
                feeds = plan.convert_feeds(<object> call.feed_dict)
                if trace is not NULL:
                    fs_span_leave(trace)
            if plan is not None and (feeds is not None or not plan.feeds):
                return self.run_plan(view, trace, plan, feeds, watching, extra, steps, call)
            # No plan can express the run, or its feeds.
            return self.run_with_hooks(view, trace, self.scheduler.hooks_in_run(view), call)
        finally:
            release_signals(held)

    cdef object run_plan(
        self, StepView* view, fs_thread_trace* trace, Plan plan, tuple feeds, list watching, list extra,
        int64_t steps, Call* call
    ):
        """Runs a plan so many times, or fewer if something unforeseen comes between two runs.

        Args:
          view: the view of the first run, opened.
          trace: the thread's trace, whose step has begun; or NULL.
          plan: the compiled plan of the caller's fetches and `extra`.
          feeds: the values to feed, or None.
          extra: the fetches that hooks watch, and the step if it is fetched. May be empty.
          steps: how many runs; 1 outside a loop.
          call: the call; `last_result` is kept for a loop that raises.
        """
        cdef HookScheduler scheduler = self.scheduler
        cdef bint fetches_step = view.source == FETCHED_STEP
        cdef list values = None
        cdef list ended = None
        cdef list rejected = None
        cdef object step = None
        cdef SpanStats runtime = None
        cdef bint due
        if trace is not NULL:
            runtime = runtime_stats(self.probe, scheduler, <object> call.fetches, fetches_step)
            fs_span_enter_first(trace, &runtime.c)
        try:
            while True:
                values = self.runner.execute(plan, feeds)
                if trace is not NULL:
                    fs_span_leave_last(trace)
                steps -= 1
                if extra:
                    # The plan is of a list. Of the caller's values, only the last ones are made.
                    rejected = rejected_by(watching, values, <FetchList> plan.structure)
                    if fetches_step:
                        step = (<FetchList> plan.structure).build_item(values, len(extra))
                scheduler.close_step(view, step)
                due = rejected is not None or scheduler.any_after_run(view)
                if due:
                    self.call_after_run(view, trace, call, rejected)
                self.runner.runs_ended += 1
                ended = values
                if call.steps_left is not NULL:
                    call.steps_left[0] -= 1
                if due or call.steps_left is NULL:
                    break
                # Before signal handlers run, which may move the step: the next run then finds that.
                scheduler.next_step(view)
                # A loop in C otherwise never lets a signal handler run.
                PyErr_CheckSignals()
                if steps == 0 or (<object> call.stop_event)._flag or self._should_stop or scheduler.hooks.is_outdated():
                    break
                if scheduler.due_by_time():
                    break
                if trace is not NULL:
                    fs_step_next(trace, &runtime.c)
        except BaseException:
            if ended is not None and call.steps_left is not NULL:
                last = plan.structure.build(ended)
                keep_last_result(call, last[0] if extra else last)
            raise
        last = self.runner.build(trace, runtime, plan, values)
        return last[0] if extra else last

    cdef Plan augmented_plan(self, Plan plan, object fetches, list extra, object feed_dict):
        """The plan of a run that fetches more than the caller asks for. Kept, as it is the same in the next run."""
        cdef Py_ssize_t i
        cdef Plan augmented = plan.augmented
        # One without a callable is looked up each time: perhaps there is room for one by now.
        if augmented is not None and augmented.callable is not None and len(extra) == len(plan.extra_fetches):
            for i in range(len(extra)):
                if extra[i] is not plan.extra_fetches[i]:
                    break
            else:
                augmented.last_used = plan.last_used
                return augmented
        augmented = self.runner.find_plan([fetches, *extra], feed_dict)
        plan.augmented = None
        plan.extra_fetches = extra
        plan.augmented = augmented
        return augmented

    cdef int call_after_run(self, StepView* view, fs_thread_trace* trace, Call* call, list rejected) except -1:
        """After a run in which no hook was called, calls the after-run hooks that are due, and hooks that reject a value.

        Args:
          view: the view of the run, closed.
          trace: the thread's trace, or NULL if the run isn't recorded.
          call: the arguments of the run.
          rejected: list of (hook, value), or None.
        """
        cdef bint held = hold_signals()
        cdef HookedRun run = None
        try:
            if trace is not NULL:
                fs_span_enter(trace, &self.probe.dispatch_stats.c)
            run = new_hooked_run(self.session_seen, self.runner, self.scheduler, self.probe, trace, call)
            if rejected is not None:
                run.hooks = [hook for hook, _ in rejected]
                run.results = [value for _, value in rejected]
            run.call_after_run(view, list(self._hooks))
            if trace is not NULL:
                fs_span_leave(trace)
            self._should_stop = self._should_stop or run.context.stop_requested
        except Exception as error:
            report_error(self._hooks, None if run is None else run.context, error)
            raise
        finally:
            release_signals(held)
        return 0


compiled_classes.insert(0, Hooked)
