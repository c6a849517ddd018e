"""The session that calls the hooks around each run, and leaves out those that have nothing to do in it."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from fastsup.core.recording cimport SpanStats
from fastsup.core.recorder cimport Recorder, begin_scope
from fastsup.core.spans cimport (
    fs_scope, fs_scope_end, fs_span_enter_first, fs_span_leave_last, fs_step_next, fs_thread_trace
)
from fastsup.runtime.fetches cimport FetchList
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.session.hooked_run cimport HookedRun, hooked_run
from fastsup.train.session.hook_errors import report_error
from fastsup.train.session.recorded_session cimport RecordedSession, stats_at_hand
from fastsup.train.scheduler.scheduled_hook cimport ScheduledHookBase
from fastsup.train.scheduler.step_view cimport FETCHED_STEP, StepView
from fastsup.runtime.stop_signals cimport hold_signals, release_signals
from fastsup.train.session.wrapped_sessions cimport Call, Wrapped, keep_last_result, new_call
from fastsup.train.session.wrapped_sessions import compiled_classes


cdef list rejected_by(list watching, list values, FetchList structure):
    """The hooks that have to see what they watch, each with its value; None if they accept it unseen.

    Args:
      watching: the hooks.
      values: the result of the run: what the caller wants, and then what each of them watches; or
      structure: what makes that of the runtime's values, which `values` then are. None: they are the result.
    """
    cdef list rejected = None
    cdef Py_ssize_t i
    for i in range(len(watching)):
        value = values[i + 1] if structure is None else structure.build_item(values, i + 1)
        if not (<ScheduledHookBase> watching[i]).accepts(value):
            rejected = rejected or []
            rejected.append((watching[i], value))
    return rejected


cdef class Hooked(RecordedSession):
    """Hooked(sess, hooks)\n--\n
    A session that calls hooks around each run.

    Args:
      sess: the session to run in.
      hooks: iterable of `SessionRunHook`.
    """

    def __init__(self, sess, hooks):
        RecordedSession.__init__(self, sess, hooks)
        self._should_stop = False

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
        self._forget_hooks()
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

    cdef object step(self, Call* call):
        try:
            if not call.hooks:
                return self._sess.run(<object> call.fetches, feed_dict=<object> call.feed_dict)
            if self.is_stopped():
                raise RuntimeError("Run called even after should_stop requested.")
            if call.steps_left is not NULL:
                return self.steps(call)
            return self.run_unstopped(
                <object> call.fetches, <object> call.feed_dict, <object> call.options, <object> call.run_metadata
            )
        except Exception as error:
            report_error(self._hooks, None, error)
            raise

    cdef bint is_stopped(self) except -1:
        if self._should_stop:
            return True
        if self.scheduler is not None and self._sess is self.session_seen and not self._wrapped_is_stoppable:
            return False
        return Wrapped.is_stopped(self)

    cdef bint has_schedules(self) except -1:
        """Whether hooks may be left out. Not in a session of somebody else's making, which may do anything in run."""
        cdef HookScheduler scheduler = None
        cdef SessionRunner runner = None
        if self._sess is not self.session_seen:
            session = self._sess
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

    cdef object run_unstopped(self, object fetches, object feed_dict, object options, object run_metadata):
        if self.recorded_by[0] is not NULL:
            return self.run_recorded(fetches, feed_dict, options, run_metadata)
        return self.run_on(NULL, fetches, feed_dict, options, run_metadata)

    cdef object run_recorded(self, object fetches, object feed_dict, object options, object run_metadata):
        """A run as a step of the profile."""
        cdef fs_scope scope
        cdef Recorder recorder = <Recorder> self.recorded_by[0]
        if recorder is not self.known_to:
            recorder = self.watching_recorder()
        begin_scope(&scope, recorder, True, self.caller)
        self.under_way += 1
        try:
            if recorder.step_markers:
                with recorder.step_marker():
                    return self.run_on(scope.trace, fetches, feed_dict, options, run_metadata)
            return self.run_on(scope.trace, fetches, feed_dict, options, run_metadata)
        finally:
            fs_scope_end(&scope)
            self.recording_ended()

    cdef object run_on(self, fs_thread_trace* trace, object fetches, object feed_dict, object options, object run_metadata):
        cdef Plan plan
        cdef SpanStats runtime = None
        cdef list called
        cdef StepView view
        if not self.has_schedules():
            return self.run_calling(NULL, list(self._hooks), fetches, feed_dict, options, run_metadata)
        if options is None and run_metadata is None:
            # The run without what hooks ask for isn't compiled before it is made.
            plan = self.runner.find_plan(fetches, feed_dict, False)
            if plan is not None:
                self.scheduler.open_step(&view, plan)
                if self.scheduler.any_in_run(&view):
                    called = self.scheduler.hooks_in_run(&view)
                    if called:
                        return self.run_calling(&view, called, fetches, feed_dict, None, None)
            if plan is not None and plan.callable is None and not self.fetches_more(&view):
                plan = self.runner.find_plan(fetches, feed_dict)
            if plan is not None:
                if len(plan.feeds) > 0 or self.fetches_more(&view):
                    return self.run_without_calls(&view, plan, fetches, feed_dict)
                if trace is not NULL:
                    runtime = stats_at_hand(self, self.scheduler, fetches, view.source == FETCHED_STEP)
                    fs_span_enter_first(trace, &runtime.c)
                values = self.runner.execute(plan, None)
                if trace is not NULL:
                    fs_span_leave_last(trace)
                self.scheduler.close_step(&view, None)
                if self.scheduler.any_after_run(&view):
                    self.call_after_run(&view, fetches, None, None)
                self.runner.runs_ended += 1
                return self.runner.build(trace, runtime, plan, values)
        # The effect of such a run on the step isn't known. Every hook is called, whatever its schedule.
        self.scheduler.open_step(&view, None)
        return self.run_calling(&view, list(self._hooks), fetches, feed_dict, options, run_metadata)

    cdef bint fetches_more(self, StepView* view) except -1:
        """Whether a run that calls no hook fetches more than the caller asks for: what hooks watch, or the step."""
        return view.source == FETCHED_STEP or len(self.scheduler.hooks.watched_fetches) > 0

    cdef object run_without_calls(self, StepView* view, Plan plan, object fetches, object feed_dict):
        """A run with feeds, or with values that hooks watch, in which none of them is called."""
        cdef bint held = hold_signals()
        try:
            return self.run_without_calls_held(view, plan, fetches, feed_dict)
        finally:
            release_signals(held)

    cdef object run_without_calls_held(self, StepView* view, Plan plan, object fetches, object feed_dict):
        cdef HookScheduler scheduler = self.scheduler
        cdef list watching = scheduler.hooks.watching
        cdef list extra = scheduler.hooks.watched_fetches
        cdef tuple feeds = None
        cdef list rejected = None
        cdef object step = None
        cdef fs_thread_trace* trace = self.trace_now()
        if view.source == FETCHED_STEP:
            extra = [*extra, scheduler.step_read]
        if extra:
            plan = self.plan_with(plan, fetches, extra, feed_dict)
        wanted = [fetches, *extra] if extra else fetches
        if trace is not NULL:
            values = self.runner.run_in_spans(trace, stats_at_hand(self, scheduler, fetches, view.source == FETCHED_STEP), plan, wanted, feed_dict)
        else:
            if plan is not None and plan.feeds:
                feeds = plan.convert_feeds(feed_dict)
            if plan is None or (feeds is None and plan.feeds):
                values = self._sess.run(wanted, feed_dict)
            else:
                values = plan.structure.build(self.runner.execute(plan, feeds))
        if extra:
            if view.source == FETCHED_STEP:
                step = values[len(extra)]
            rejected = rejected_by(watching, values, None)
            values = values[0]
        scheduler.close_step(view, step)
        if rejected is not None or scheduler.any_after_run(view):
            self.call_after_run(view, fetches, feed_dict, rejected)
        self.runner.runs_ended += 1
        return values

    cdef Plan plan_with(self, Plan plan, object fetches, list extra, object feed_dict):
        """The plan of a run that fetches more than the caller asks for. Kept, as it is the same in the next run."""
        cdef Py_ssize_t i
        if plan is not None and plan.augmented is not None and len(extra) == len(plan.extra_fetches):
            for i in range(len(extra)):
                if extra[i] is not plan.extra_fetches[i]:
                    break
            else:
                return plan.augmented
        cdef Plan augmented = self.runner.find_plan([fetches, *extra], feed_dict)
        if plan is not None:
            plan.augmented = None
            plan.extra_fetches = extra
            plan.augmented = augmented
        return augmented

    cdef object steps(self, Call* call):
        """Runs the steps of a loop until a hook is due, or until something else has to be asked between two steps."""
        cdef object fetches = <object> call.fetches
        cdef int64_t* left = call.steps_left
        cdef object stop_event = None if call.stop_event is NULL else <object> call.stop_event
        cdef Plan plan
        cdef list watching = None
        cdef int64_t steps = 0
        cdef object result
        cdef StepView view
        if self.recorded_by[0] is not NULL and self.watching_recorder().step_markers:
            stop_event = None
        if stop_event is not None and self.has_schedules():
            plan = self.runner.find_plan(fetches, None, False)
            if plan is not None and not plan.feeds:
                steps = min(self.scheduler.idle_steps(&view, plan), left[0])
                watched_fetches = self.scheduler.hooks.watched_fetches
                if steps > 0 and watched_fetches:
                    watching = self.scheduler.hooks.watching
            if steps > 0 and self.recorded_by[0] is not NULL and not self.is_compiled(plan, watching is not None):
                steps = 0  # Compiling it takes long: a part of the step that it is first run in.
            elif watching is not None:
                plan = self.plan_with(plan, fetches, watched_fetches, None)
            elif steps > 0 and plan.callable is None:
                plan = self.runner.find_plan(fetches, None)
            steps = 0 if plan is None else steps
        if steps < 1:
            result = self.run_unstopped(fetches, None, None, None)
            left[0] -= 1
            return result
        if self.recorded_by[0] is not NULL:
            return self.loop_recorded(&view, plan, watching, fetches, steps, call)
        return self.loop_while_idle(&view, NULL, None, plan, watching, fetches, steps, call)

    cdef bint is_compiled(self, Plan plan, bint watched) noexcept:
        """Whether nothing is to be compiled for a run that calls no hook."""
        return plan.augmented is not None if watched else plan.callable is not None

    cdef object loop_recorded(
        self, StepView* view, Plan plan, list watching, object fetches, int64_t steps, Call* call
    ):
        """The same steps as steps of the profile, one right after the other: two readings of the clock for each."""
        cdef fs_scope scope
        cdef Recorder recorder = self.known_to  # Held: a hook may close the session.
        cdef SpanStats runtime = stats_at_hand(self, self.scheduler, fetches, False)
        begin_scope(&scope, recorder, True, self.caller)
        self.under_way += 1
        try:
            fs_span_enter_first(scope.trace, &runtime.c)
            return self.loop_while_idle(
                view, scope.trace, runtime, plan, watching, fetches, steps, call
            )
        finally:
            fs_scope_end(&scope)
            self.recording_ended()

    cdef object loop_while_idle(
        self, StepView* view, fs_thread_trace* trace, SpanStats runtime, Plan plan, list watching, object fetches, int64_t steps,
        Call* call
    ):
        """So many steps, or fewer if something comes between that wasn't foreseen. Where they are recorded, the first one
        has been begun."""
        cdef HookScheduler scheduler = self.scheduler
        cdef object stop_event = <object> call.stop_event
        cdef list values = None
        cdef list rejected = None
        cdef bint due
        try:
            while True:
                values = self.runner.execute(plan, None)
                if trace is not NULL:
                    fs_span_leave_last(trace)
                call.steps_left[0] -= 1
                steps -= 1
                if watching is not None:
                    # The runtime's values: what the caller gets is made of the last ones only. The plan is of a list.
                    rejected = rejected_by(watching, values, <FetchList> plan.structure)
                scheduler.close_step(view, None)
                due = rejected is not None or scheduler.any_after_run(view)
                if due:
                    self.call_after_run(view, fetches, None, rejected)
                self.runner.runs_ended += 1
                if due:
                    break
                # Right after the run: a signal handler may move the step.
                scheduler.next_step(view)
                # A loop in C otherwise never lets a signal handler run.
                PyErr_CheckSignals()
                if steps == 0 or stop_event._flag or self._should_stop or scheduler.hooks.is_outdated():
                    break
                if scheduler.due_by_time():
                    break
                if trace is not NULL:
                    fs_step_next(trace, &runtime.c)
        except BaseException:
            if values is not None:
                last = plan.structure.build(values)
                keep_last_result(call, last if watching is None else last[0])
            raise
        last = self.runner.build(trace, runtime, plan, values)
        return last if watching is None else last[0]

    cdef int call_after_run(self, StepView* view, object fetches, object feed_dict, list rejected) except -1:
        """Calls after-run hooks that are due after a run without hooks, and those that have to see a value that they watch.

        Args:
          view: the view of the run, closed.
          fetches, feed_dict: the run.
          rejected: list of (hook, value), or None.
        """
        cdef bint held = hold_signals()
        cdef HookedRun run = None
        try:
            run = hooked_run(self, self.runner, self.scheduler, [], fetches, feed_dict, None, None)
            if rejected is not None:
                run.called = [hook for hook, _ in rejected]
                run.results = [value for _, value in rejected]
            run.call_after_run(view)
            self._should_stop = self._should_stop or run.context.stop_requested
        except Exception as error:
            report_error(self._hooks, None if run is None else run.context, error)
            raise
        finally:
            release_signals(held)
        return 0

    cdef object run_calling(
        self, StepView* view, list called, object fetches, object feed_dict, object options, object run_metadata
    ):
        """A run between the callbacks of hooks."""
        cdef bint held = hold_signals()
        cdef HookedRun run = None
        try:
            run = hooked_run(self, self.runner, self.scheduler, called, fetches, feed_dict, options, run_metadata)
            result = run.run(view)
            self._should_stop = self._should_stop or run.context.stop_requested
            if self.runner is not None:
                self.runner.runs_ended += 1
            return result
        except Exception as error:
            # This is where the context is known. An error is told of once.
            report_error(self._hooks, None if run is None else run.context, error)
            raise
        finally:
            release_signals(held)


compiled_classes.insert(0, Hooked)
