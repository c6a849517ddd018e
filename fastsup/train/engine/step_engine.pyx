"""The engine of a session's steps: it calls the hooks around each run, and skips those that have nothing to do in it.

A step goes one of two ways:

    run_with_hooks              calls some hooks before and after the run (hooked_run.pyx)
    run_without_hooks_called    calls none in the run; in a loop, it makes as many runs as come before the next hook is due

After both, the after-run hooks that are due are called. A loop whose steps can be made in one call asks `run_at_once` first.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from fastsup.core.probe cimport Part, Probe, ProbeFinder, probe_of
from fastsup.runtime.plans cimport FetchList, Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.common.stop_signals cimport hold_signals, release_signals
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.scheduler.scheduled_hook cimport ScheduledHookBase
from fastsup.train.scheduler.run_snapshot cimport FETCHED_STEP, RunSnapshot
from tensorflow.python.platform import tf_logging as logging

from fastsup.core import loop as core_loop
from fastsup.core.errors import end_hooks
from fastsup.train.engine.hook_errors import report_error
from fastsup.train.engine.hooked_run cimport HookedRun, new_hooked_run
from fastsup.train.engine.run_request cimport RunRequest, new_request


# How long the steps of one call may take.
cdef double most_seconds = core_loop.SECONDS_AT_ONCE


class ClosedSessionError(RuntimeError, AttributeError):
    """A closed session was asked to run. TensorFlow's session raises RuntimeError, its monitored sessions AttributeError."""


cpdef object still_open(object session):
    """The session that another one wraps; raises ClosedSessionError if it is None. Another thread may close it any time."""
    if session is None:
        raise ClosedSessionError("Attempted to use a closed Session.")
    return session


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


cdef list rejected_among(list watching, object results):
    """As `rejected_by`, of several runs that were made in one call: the first value of each hook that it doesn't accept.

    Args:
      watching: the hooks.
      results: for each of them, the values of what it watches, one for each run.
    """
    cdef list rejected = None
    for hook, values in zip(watching, results):
        for value in values:
            if not (<ScheduledHookBase> hook).accepts(value):
                rejected = rejected or []
                rejected.append((hook, value))
                break
    return rejected


cdef class StepEngine:
    """StepEngine(hooks)\n--\n
    Runs the steps of a session, with hooks around them.

    Args:
      hooks: the hooks. The program may change a list while it is used.
    """

    def __init__(self, hooks):
        self.hooks = hooks
        self.probes = ProbeFinder(hooks)
        self.probes.record(None)

    def record(self, profiler, opened):
        """Records every run from now on.

        Args:
          profiler: as for `ProbeFinder.record`.
          opened: the `SessionOrigin` that says who has opened the session, or None.
        """
        self.probes.origin = opened
        if profiler is not None:
            self.probes.record(profiler)

    def step(self, session, fetches, feed_dict, options, run_metadata):
        """Runs one step, between the hooks' `before_run` and `after_run`.

        Args:
          session: the session to run in.
          fetches, feed_dict, options, run_metadata: as for `tf.compat.v1.Session.run`.

        Raises:
          RuntimeError: a stop was requested before; or two hooks, or a hook and the caller, feed the same tensor.
          ClosedSessionError: the session is None.
        """
        return self.run(session, new_request(fetches, feed_dict, options, run_metadata))

    cpdef object step_without_hooks(self, object session, object fetches, object feed_dict):
        """Runs one step that no hook sees. The hooks' `on_error` is called after an error."""
        try:
            return still_open(session).run(fetches, feed_dict=feed_dict)
        except Exception as error:
            report_error(self.hooks, None, error)
            raise

    def sync_hooks(self):
        """Brings the state of hooks that were left out of runs up to date."""
        if self.scheduler is not None:
            self.scheduler.sync_all()

    def close(self):
        """Tells the hooks that the session will be closed now."""
        self.sync_hooks()
        try:
            # Each of them: a saver waits for its write, whatever another hook raises.
            end_hooks(
                [hook for hook in self.hooks if isinstance(hook, ScheduledHookBase)],
                lambda hook: hook._before_close(),
                logging.error,
                "The hook",
            )
        finally:
            self.probes.close()

    cdef bint attach(self, object session) except -1:
        """Gets ready for steps in a session. True if hooks may be skipped.

        A session that isn't a `fastsup.Session` may do anything in `run`: no hook is skipped.
        """
        cdef HookScheduler scheduler = None
        cdef SessionRunner runner = None
        if session is not self.session:
            if (
                isinstance(session, SessionRunner)
                and type(session).run is SessionRunner.run
                and "run" not in session.__dict__
            ):
                runner = session
                scheduler = HookScheduler(self.hooks, runner)
            # Another thread may have been first.
            if session is not self.session:
                self.scheduler = scheduler
                self.runner = runner
                self.session = session
        return self.scheduler is not None

    cdef object run(self, object session, RunRequest request):
        """Runs one step; in a loop, at least one, and more where nothing has to be asked between them."""
        cdef Probe probe
        try:
            if self.should_stop:
                raise RuntimeError("Run called even after should_stop requested.")
            probe = request.probe = probe_of(self.probes, still_open(session))
            probe.begin(&request.scope)
            try:
                return self.run_steps(session, request)
            finally:
                probe.end(&request.scope, True)
        except Exception as error:
            report_error(self.hooks, None, error)
            raise

    cdef object run_steps(self, object session, RunRequest request):
        """Runs one step; in a loop, as many as come before a hook is due or something else must be asked between two."""
        cdef Plan plan = None
        cdef list hooks
        if not self.attach(session):
            return self.run_with_hooks(request, list(self.hooks))
        if request.options is None and request.run_metadata is None:
            # Perhaps the run fetches more, for hooks: this plan isn't compiled yet.
            plan = self.runner.find_plan(request.fetches, request.feed_dict, False)
        self.scheduler.open_step(&request.snapshot, plan)
        if plan is None:
            # The effect of such a run on the step isn't known.
            return self.run_with_hooks(request, self.scheduler.hooks_in_unknown_run(&request.snapshot))
        request.steps = 1
        if plan.structure.calls_program or self.scheduler.any_in_run(&request.snapshot):
            hooks = self.scheduler.hooks_in_run(&request.snapshot)
            # A class of the program may refuse the values: then the run has failed, and no `after_run` is called.
            if hooks or plan.structure.calls_program:
                return self.run_with_hooks(request, hooks)
        elif request.stop_event is not None and not request.probe.marks_steps:
            request.steps = min(self.scheduler.idle_steps(&request.snapshot), request.steps_left, request.most_steps)
        return self.run_without_hooks_called(request, plan)

    cdef int64_t run_at_once(self, object session, RunRequest request) except -1:
        """Makes several steps of a loop in one call, up to the next in which a hook has to be called, or after which one is due.

        Args:
          session: the session that steps run in.
          request: the request of a loop, with `several`. `last_result` is set if steps were made.

        Returns:
          The number of steps; 0 if the next one has to be made on its own.
        """
        if self.should_stop or session is None:
            return 0
        request.probe = probe_of(self.probes, session)
        if request.probe.records or not self.attach(session):
            return 0
        try:
            return self.make_at_once(request)
        except Exception as error:
            report_error(self.hooks, None, error)
            raise

    cdef int64_t make_at_once(self, RunRequest request) except -1:
        cdef HookScheduler scheduler = self.scheduler
        cdef RunSnapshot* snapshot = &request.snapshot
        cdef Plan plan = self.runner.find_plan(request.fetches, request.feed_dict, False)
        cdef list watching, rejected
        cdef tuple made
        cdef int64_t steps
        scheduler.open_step(snapshot, plan)
        if plan is None or plan.structure.calls_program or scheduler.any_in_run(snapshot):
            return 0
        steps = min(scheduler.steps_at_once(snapshot), request.steps_left)
        if steps < 2:
            return 0
        # Together, before another thread can change the hooks.
        watching = scheduler.hooks.watching
        made = self.runner.run_at_once(
            request.several, steps, max(min(scheduler.seconds_until_due(), most_seconds), 0.0),
            scheduler.hooks.watched_fetches, snapshot.delta
        )
        if made is None:
            return 0
        steps, result, results = made
        rejected = rejected_among(watching, results)
        scheduler.close_steps(snapshot, steps)
        if rejected is not None or scheduler.any_after_run(snapshot):
            self.call_hooks(request, [hook for hook, _ in rejected or ()], [value for _, value in rejected or ()])
        self.count_ended(steps)
        request.steps_left -= steps
        request.last_result = (result,)
        return steps

    cdef object run_with_hooks(self, RunRequest request, list hooks):
        """A run between the callbacks of hooks.

        Args:
          request: the request; its snapshot is opened if there is a scheduler.
          hooks: the hooks to call in the run.
        """
        result = self.call_hooks(request, hooks, None)
        self.count_ended(1)
        request.steps_left -= 1
        return result

    cdef void count_ended(self, int64_t steps) noexcept:
        """Counts steps that have run with their hooks."""
        self.runs_ended += steps
        if self.runner is not None:
            self.runner.runs_ended += steps

    cdef object call_hooks(self, RunRequest request, list hooks, list results):
        """Calls hooks around a run, and then the after-run hooks that are due.

        Args:
          request: the request; its snapshot is opened if there is a scheduler, and closed if the run was made before.
          hooks: the hooks to call in the run.
          results: what each of them gets of a run that was made before; None to make the run here.

        Returns:
          The result of the run; None if it was made before.
        """
        cdef bint held = hold_signals()
        cdef HookedRun run = None
        cdef object result = None
        try:
            request.probe.enter(request.probe.dispatch)
            run = new_hooked_run(self.session, self.runner, self.scheduler, request)
            run.hooks = hooks
            run.results = results
            if results is None:
                result = run.run(&request.snapshot)
            run.call_after_run(&request.snapshot, list(self.hooks))
            request.probe.leave()
            self.should_stop = self.should_stop or run.context.stop_requested
            return result
        except Exception as error:
            # This is where the context is known. An error is reported once.
            report_error(self.hooks, None if run is None else run.context, error)
            raise
        finally:
            release_signals(held)

    cdef object run_without_hooks_called(self, RunRequest request, Plan plan):
        """Runs that fetch what hooks watch, and the step if need be, and call no hook.

        Args:
          request: the request; its snapshot is opened for the first run.
          plan: the plan of the caller's fetches, perhaps not compiled.
        """
        # Taken together, before another thread can change the hooks: the plan is for both lists.
        cdef list watching = self.scheduler.hooks.watching
        cdef list extra = self.scheduler.hooks.watched_fetches
        cdef tuple feeds = None
        # In a loop a signal may come between two steps. A single step has Python code between its run and its end.
        cdef bint held = request.steps == 1 and hold_signals()
        try:
            if request.snapshot.source == FETCHED_STEP:
                extra = [*extra, self.scheduler.step_read]
            if extra:
                plan = self.augmented_plan(plan, request, extra)
            elif plan.callable is None:
                plan = self.runner.find_plan(request.fetches, request.feed_dict)
            if plan is not None and plan.feeds:
                request.probe.enter(request.probe.feed_conversion)
                feeds = plan.convert_feeds(request.feed_dict)
                request.probe.leave()
            if plan is not None and (feeds is not None or not plan.feeds):
                return self.run_plan(request, plan, feeds, watching, extra)
            # No plan can express the run, or its feeds.
            return self.run_with_hooks(request, self.scheduler.hooks_in_run(&request.snapshot))
        finally:
            release_signals(held)

    cdef object run_plan(self, RunRequest request, Plan plan, tuple feeds, list watching, list extra):
        """Runs a plan `request.steps` times, or fewer if something unforeseen comes between two runs.

        Args:
          request: the request; its snapshot is opened for the first run. `last_result` is kept for a loop that raises.
          plan: the compiled plan of the caller's fetches and `extra`.
          feeds: the values to feed, or None.
          watching: the hooks that watch a fetch.
          extra: the fetches that hooks watch, and the step if it is fetched. May be empty.
        """
        cdef HookScheduler scheduler = self.scheduler
        cdef Probe probe = request.probe
        cdef RunSnapshot* snapshot = &request.snapshot
        cdef int64_t steps = request.steps
        cdef bint fetches_step = snapshot.source == FETCHED_STEP
        cdef list values = None
        cdef list ended = None
        cdef list rejected = None
        cdef object step = None
        cdef Part part = probe.run_part(request.fetches, watching, None, fetches_step)
        cdef bint due
        probe.enter(part)
        try:
            while True:
                values = self.runner.execute(plan, feeds)
                probe.leave()
                steps -= 1
                if extra:
                    # The plan is of a list. Of the caller's values, only the last ones are made.
                    rejected = rejected_by(watching, values, <FetchList> plan.structure)
                    if fetches_step:
                        step = (<FetchList> plan.structure).build_item(values, len(extra))
                scheduler.close_step(snapshot, step)
                due = rejected is not None or scheduler.any_after_run(snapshot)
                if due:
                    self.call_hooks(
                        request, [hook for hook, _ in rejected or ()], [value for _, value in rejected or ()]
                    )
                self.count_ended(1)
                ended = values
                request.steps_left -= 1
                if due or not request.in_loop:
                    break
                # Before signal handlers run, which may move the step: the next run then finds that.
                scheduler.next_step(snapshot)
                # A loop in C otherwise never lets a signal handler run.
                PyErr_CheckSignals()
                if steps == 0 or request.stop_event._flag or self.should_stop or scheduler.hooks.is_outdated():
                    break
                if scheduler.due_by_time():
                    break
                probe.next(part)
        except BaseException:
            if ended is not None and request.in_loop:
                last = plan.structure.build(ended)
                request.last_result = (last[0] if extra else last,)
            raise
        last = self.runner.build(probe, plan, values)
        return last[0] if extra else last

    cdef Plan augmented_plan(self, Plan plan, RunRequest request, list extra):
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
        augmented = self.runner.find_plan([request.fetches, *extra], request.feed_dict)
        plan.augmented = None
        plan.extra_fetches = extra
        plan.augmented = augmented
        return augmented
