"""The engine of a session's steps. It calls the hooks around each run, and skips hooks that have nothing to do.

A step takes one of two paths:

    run_with_hooks  calls hooks before and after the run, as in TensorFlow's protocol, through a HookedRun
    run_bare        calls no hook in the run; in a loop, it runs all steps before the next due hook

Both paths then call the after-run hooks that are due.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject, PyTypeObject
from cython cimport freelist, no_gc
from libc.stdint cimport INT64_MAX, int64_t

from fastsup.common.stop_signals cimport hold_signals, release_signals
from fastsup.core.probe cimport Part, Probe, ProbeFinder, probe_of
from fastsup.runtime.fetches cimport FetchList
from fastsup.runtime.plans cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.run_snapshot cimport FETCHED_STEP, RunSnapshot
from fastsup.train.schedule cimport HookScheduler, ScheduledHookBase, StepRequest, request_for_step

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import session_run_hook

from fastsup.common.errors import is_end_of_input
from fastsup.core.errors import end_all_hooks, notify_hooks

cdef object SessionRunArgs = session_run_hook.SessionRunArgs
cdef object SessionRunContext = session_run_hook.SessionRunContext
cdef object SessionRunValues = session_run_hook.SessionRunValues
cdef object RunOptions = config_pb2.RunOptions
cdef object RunMetadata = config_pb2.RunMetadata

# Attribute of an error: the hooks that already received it. An error may pass through several sessions, for example an
# error in an evaluation during training.
cdef str told_attribute = "_fastsup_told"


@no_gc  # One object is created per step, and the objects that it holds don't refer to it.
@freelist(8)
cdef class RunRequest:
    """The arguments of a call and the state of its runs. Created by `new_request`."""


cdef RunRequest new_request(object fetches, object feed_dict, object options, object run_metadata):
    cdef RunRequest request = RunRequest.__new__(RunRequest)
    request.fetches = fetches
    request.feed_dict = feed_dict
    request.options = options
    request.run_metadata = run_metadata
    return request


def report_error(hooks, run_context, error):
    """Calls the hooks' `on_error`, once for each error and hook. Errors that hooks raise there are logged.

    Args:
      hooks: the hooks.
      run_context: the `SessionRunContext` of the failed run; None outside a run, or if no hook was called in the run.
      error: the error. OutOfRangeError and StopIteration end a loop normally and aren't reported.

    Raises:
      KeyboardInterrupt, SystemExit: If a hook raised it. All hooks were called before.
    """
    if is_end_of_input(error):
        return
    told = error.__dict__.setdefault(told_attribute, [])
    untold = [hook for hook in hooks if not any(hook is other for other in told)]
    told += untold

    def log(hook, another):
        # A hook in an old program may use a method of that name for another purpose.
        logging.error(
            "on_error of the hook %r failed: %r. A session calls that method for each error. See "
            "`python -m fastsup docs dropin#hooks`.",
            hook,
            another,
            exc_info=another,
        )

    able = [hook for hook in untold if getattr(hook, "on_error", None) is not None]
    notify_hooks(able, lambda hook: hook.on_error(run_context, error), log)


cdef int merge_feeds(dict feeds, object more, str message) except -1:
    """Adds feeds to a dictionary of feeds."""
    conflicts = feeds.keys() & more.keys()
    if conflicts:
        raise RuntimeError(f"{message} Conflict(s): {list(conflicts)}")
    feeds.update(more)
    return 0


cdef int merge_run_options(object options, object more) except -1:
    """Merges RunOptions: takes the larger of two numbers, true of two booleans, and both lists."""
    for name in ("trace_level", "timeout_in_ms", "inter_op_thread_pool"):
        setattr(options, name, max(getattr(options, name), getattr(more, name)))
    for name in ("output_partition_graphs", "report_tensor_allocations_upon_oom"):
        setattr(options, name, getattr(options, name) or getattr(more, name))
    debug, more_debug = options.debug_options, more.debug_options
    debug.debug_tensor_watch_opts.extend(more_debug.debug_tensor_watch_opts)
    debug.reset_disk_byte_usage = debug.reset_disk_byte_usage or more_debug.reset_disk_byte_usage
    return 0


cdef object new_named_tuple(object kind, object first, object second, object third):
    """Creates a named tuple of three elements without its constructor, because each hook and run needs one."""
    cdef tuple iterable = ((first, second, third),)
    return (<PyTypeObject*> tuple).tp_new(kind, <PyObject*> iterable, NULL)


cdef HookedRun new_hooked_run(
    object session, SessionRunner runner, HookScheduler scheduler, RunRequest request
):
    """Creates a run with hook callbacks around it. `runner` and `scheduler` are None unless it is a fastsup session."""
    cdef HookedRun run = HookedRun.__new__(HookedRun)
    run.session = session
    run.runner = runner
    run.scheduler = scheduler
    run.probe = request.probe
    run.hooks = []
    run.fetches = request.fetches
    run.feed_dict = request.feed_dict
    run.has_options = request.options is not None or request.run_metadata is not None
    run.options = request.options or RunOptions()
    run.metadata = request.run_metadata or RunMetadata()
    run.context = SessionRunContext(new_named_tuple(SessionRunArgs, run.fetches, run.feed_dict, None), session)
    return run


cdef class HookedRun:
    """A run between hook callbacks. Created by `new_hooked_run`, for one `run`."""

    cdef object run(self, RunSnapshot* snapshot):
        """Calls the hooks around the run. Opens the `snapshot` if there is a scheduler."""
        self.call_before_run(snapshot)
        if self.scheduler is not None:
            self.find_step(snapshot)
        values = self.fetch(snapshot)
        self.distribute_results(values)
        if self.scheduler is not None:
            for hook in self.hooks:
                self.scheduler.mark_synced(hook)
            self.scheduler.close_step(snapshot, values[len(values) - 1] if snapshot.source == FETCHED_STEP else None)
        return values[0]

    cdef int call_before_run(self, RunSnapshot* snapshot) except -1:
        """Calls `before_run` of each hook, and merges the requests."""
        cdef Py_ssize_t i, j
        self.requests = [None] * len(self.hooks)
        for i in range(len(self.hooks)):
            hook = self.hooks[i]
            if self.scheduler is not None:
                self.scheduler.sync_before_run(hook)
            # After an error, ending the step also ends its parts.
            self.probe.enter(self.probe.callback_part(hook, True))
            request = hook.before_run(self.context)
            self.probe.leave()
            if request is None:
                continue
            if type(request) is SessionRunArgs:
                fetches, feeds, run_options = (<tuple> request)[0], (<tuple> request)[1], (<tuple> request)[2]
            else:
                fetches, feeds, run_options = request.fetches, request.feed_dict, request.options
            if fetches is not None:
                self.requests[i] = fetches
                if self.scheduler is None or self.scheduler.hooks.has_twins:
                    # If a hook is in the list twice, its last request counts.
                    for j in range(i):
                        if self.hooks[j] is hook:
                            self.requests[j] = None
            if feeds:
                self.hook_feeds = self.hook_feeds or {}
                merge_feeds(self.hook_feeds, feeds, "Same tensor is fed by two hooks.")
            if run_options:
                merge_run_options(self.options, run_options)
                self.has_options = True
        if self.hook_feeds:
            if self.feed_dict:
                merge_feeds(self.hook_feeds, self.feed_dict, "Same tensor is fed by a SessionRunHook and user.")
            self.feed_dict = self.hook_feeds
        return 0

    cdef int find_step(self, RunSnapshot* snapshot) except -1:
        """Finds the hooks that request the global step, and the step after the calls of `before_run`."""
        self.scheduler.reopen_step(snapshot, self.feed_dict, self.hook_feeds is not None)
        self.step_requests = [
            None if request is None else request_for_step(self.scheduler.count, request, snapshot.fed)
            for request in self.requests
        ]
        for request in self.step_requests:
            if request is not None:
                self.step = self.scheduler.known_step(snapshot)
                break
        return 0

    cdef list fetch(self, RunSnapshot* snapshot):
        """Executes the run. Returns the caller's result, the values of `fetched`, and the fetched global step."""
        cdef Part part
        cdef Py_ssize_t i
        cdef bint fetches_step = self.scheduler is not None and snapshot.source == FETCHED_STEP
        cdef list wanted
        self.fetched = self.requests[:]
        if self.step is not None:
            for i in range(len(self.hooks)):
                if self.step_requests[i] is not None:
                    self.fetched[i] = (<StepRequest> self.step_requests[i]).rest
        part = self.probe.run_part(self.fetches, self.hooks, self.fetched, fetches_step)
        wanted = [self.fetches] + [request for request in self.fetched if request is not None]
        if fetches_step:
            wanted.append(self.scheduler.step_read)
        if self.scheduler is not None and not self.has_options and not self.runner.fills_metadata:
            if not self.probe.records:
                return self.runner.run(wanted, self.feed_dict)
            plan = self.runner.find_plan(wanted, self.feed_dict) if self.runner.lifetime.open else None
            return self.runner.run_in_parts(self.probe, part, plan, wanted, self.feed_dict)
        self.probe.enter(part)
        if self.scheduler is not None:
            values = self.runner.run(wanted, self.feed_dict, self.options, self.metadata)
        else:
            values = self.fetch_by_hook()
        self.probe.leave()
        return values

    cdef list fetch_by_hook(self):
        """Executes the run in a session that isn't a `fastsup.Session`, with the arguments that TensorFlow passes."""
        cdef list requesting = [
            hook for hook, request in zip(self.hooks, self.fetched) if request is not None
        ]
        fetches = {"caller": self.fetches}
        fetches.update(zip(requesting, [request for request in self.fetched if request is not None]))
        fetched = self.session.run(
            fetches=fetches, feed_dict=self.feed_dict, options=self.options, run_metadata=self.metadata
        )
        return [fetched["caller"]] + [fetched[hook] for hook in requesting]

    cdef int distribute_results(self, list values) except -1:
        """Gives each hook the result of its request."""
        cdef Py_ssize_t i, n = 0
        self.results = [None] * len(self.hooks)
        for i in range(len(self.hooks)):
            if self.fetched[i] is not None:
                n += 1
                self.results[i] = values[n]
            if self.step is not None and self.step_requests[i] is not None:
                self.results[i] = (<StepRequest> self.step_requests[i]).build(self.step, self.results[i])
        if self.scheduler is None or self.scheduler.hooks.has_twins:
            # If a hook is in the list twice, each entry gets the result of the last request.
            by_hook = {
                id(hook): result
                for hook, request, result in zip(self.hooks, self.requests, self.results) if request is not None
            }
            self.results = [by_hook.get(id(hook)) for hook in self.hooks]
        return 0

    cdef int call_after_run(self, RunSnapshot* snapshot, list hooks) except -1:
        """Calls `after_run` of the hooks called in the run, and of the after-run hooks that are due."""
        cdef Py_ssize_t i = 0
        hook = None
        try:
            for hook in hooks:
                if i < len(self.hooks) and hook is self.hooks[i]:
                    i += 1
                    self.call_one_after_run(snapshot, hook, self.results[i - 1])
                elif self.scheduler is not None and self.scheduler.is_due_after_run(snapshot, hook):
                    self.scheduler.sync_after_run(snapshot, hook)
                    self.call_one_after_run(snapshot, hook, self.scheduler.step_before(snapshot))
        except BaseException:
            if self.scheduler is not None:
                self.scheduler.skip_remaining(snapshot, hook, hooks)
            raise
        return 0

    cdef int call_one_after_run(self, RunSnapshot* snapshot, object hook, object result) except -1:
        values = new_named_tuple(SessionRunValues, result, self.options, self.metadata)
        if self.scheduler is None or not isinstance(hook, ScheduledHookBase):
            return self.call_in_part(hook, values)
        self.scheduler.tell_step_after(snapshot, <ScheduledHookBase> hook)
        try:
            return self.call_in_part(hook, values)
        finally:
            (<ScheduledHookBase> hook).counted_step = None

    cdef int call_in_part(self, object hook, object values) except -1:
        """Calls `after_run` as a part of the recorded step."""
        self.probe.enter(self.probe.callback_part(hook, False))
        hook.after_run(self.context, values)
        self.probe.leave()
        return 0


class ClosedSessionError(RuntimeError, AttributeError):
    """A closed session can't run. TensorFlow's session raises RuntimeError, its monitored sessions AttributeError."""


cpdef object still_open(object session):
    """Returns the wrapped session. Raises ClosedSessionError for None: another thread may have closed it."""
    if session is None:
        raise ClosedSessionError("Attempted to use a closed Session.")
    return session


cdef list rejected_by(list watching, list values, FetchList structure):
    """Returns the hooks that reject the value of their watched fetch, each with the value; None if all accept."""
    cdef list rejected = None
    cdef Py_ssize_t i
    for i in range(len(watching)):
        # The caller's fetches come first.
        value = structure.build_item(values, i + 1)
        if not (<ScheduledHookBase> watching[i]).accepts(value):
            rejected = rejected or []
            rejected.append((watching[i], value))
    return rejected


cdef class StepEngine:
    """StepEngine(hooks)\n--\n
    Runs the steps of a session, with hooks around them.

    Args:
      hooks: the hooks. The program may change a list during training.
    """

    def __init__(self, hooks):
        self.hooks = hooks
        self.probes = ProbeFinder(hooks)
        self.probes.record(None)

    def record(self, profiler, opened):
        """Records every run from now on.

        Args:
          profiler: as for `ProbeFinder.record`.
          opened: the session's `SessionOrigin`, or None.
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
          RuntimeError: If a stop was requested earlier, or if two hooks, or a hook and the caller, feed the same
            tensor.
          ClosedSessionError: If the session is None.
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
        """Updates the state of hooks that were skipped in runs."""
        if self.scheduler is not None:
            self.scheduler.sync_all()

    def close(self):
        """Notifies the hooks that the session is about to be closed."""
        self.sync_hooks()
        try:
            # Call every hook, even if one raises, because a saver must wait for its write.
            end_all_hooks(
                [hook for hook in self.hooks if isinstance(hook, ScheduledHookBase)],
                lambda hook: hook._before_close(),
                logging.error,
                "The hook",
            )
        finally:
            self.probes.close()

    cdef bint attach(self, object session) except -1:
        """Prepares for steps in a session. Returns True if hooks may be skipped.

        If it isn't a `fastsup.Session`, no hook is skipped, because its `run` may do anything.
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
            # Another thread may have set the fields first.
            if session is not self.session:
                self.scheduler = scheduler
                self.runner = runner
                self.session = session
        return self.scheduler is not None

    cdef object run(self, object session, RunRequest request):
        """Runs one step; in a loop, at least one, and more if nothing has to be checked between them."""
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
        """Runs one step; in a loop, all steps before a hook is due or something else has to be checked."""
        cdef Plan plan = None
        cdef list hooks
        if not self.attach(session):
            return self.run_with_hooks(request, list(self.hooks))
        if request.options is None and request.run_metadata is None:
            # The run may fetch more for hooks, so this plan isn't compiled yet.
            plan = self.runner.find_plan(request.fetches, request.feed_dict, False)
        self.scheduler.open_step(&request.snapshot, plan)
        if plan is None:
            # The run's effect on the global step is unknown.
            return self.run_with_hooks(request, self.scheduler.hooks_in_unknown_run(&request.snapshot))
        request.steps = 1
        if plan.structure.calls_program or self.scheduler.any_in_run(&request.snapshot):
            hooks = self.scheduler.hooks_in_run(&request.snapshot)
            # The program's class may reject the values. The run then counts as failed, and no `after_run` is called.
            if hooks or plan.structure.calls_program:
                return self.run_with_hooks(request, hooks)
        elif request.stop_event is not None and not request.probe.marks_steps:
            request.steps = min(self.scheduler.idle_steps(&request.snapshot), request.steps_left)
        return self.run_bare(request, plan)

    cdef object run_with_hooks(self, RunRequest request, list hooks):
        """Runs one step between hook callbacks."""
        result = self.call_hooks(request, hooks, None)
        self.count_ended(1)
        request.steps_left -= 1
        return result

    cdef void count_ended(self, int64_t steps) noexcept:
        """Counts completed steps, including their hooks."""
        self.runs_ended += steps
        if self.runner is not None:
            self.runner.runs_ended += steps

    cdef object call_hooks(self, RunRequest request, list hooks, list results):
        """Calls hooks around a run, then the due after-run hooks. With `results`, the run is already done."""
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
            # Report the error here, where the context is known. Later reports are skipped.
            report_error(self.hooks, None if run is None else run.context, error)
            raise
        finally:
            release_signals(held)

    cdef object run_bare(self, RunRequest request, Plan plan):
        """Executes runs that call no hook, but fetch the hooks' watched values and the global step if needed."""
        # Read both lists together, before another thread can change the hooks. The plan is for both.
        cdef list watching = self.scheduler.hooks.watching
        cdef list extra = self.scheduler.hooks.watched_fetches
        cdef tuple feeds = None
        # In a loop, a signal may arrive between steps. A single step runs Python code after its run anyway.
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
            # No plan can express the run or its feeds.
            return self.run_with_hooks(request, self.scheduler.hooks_in_run(&request.snapshot))
        finally:
            release_signals(held)

    cdef object run_plan(self, RunRequest request, Plan plan, tuple feeds, list watching, list extra):
        """Runs a plan `request.steps` times, or fewer if something unexpected happens between runs."""
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
                    # The plan fetches a list. Only the last step's values are built for the caller.
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
                # Count the step before signal handlers run. They may change the global step, which the next run then
                # detects.
                scheduler.next_step(snapshot)
                # A loop in C has to run the signal handlers itself.
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
        """Returns the plan of a run with additional fetches, and keeps it for the next run."""
        cdef Py_ssize_t i
        cdef Plan augmented = plan.augmented
        # A plan without a callable is looked up each time, because there may be room for a callable now.
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
