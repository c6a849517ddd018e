"""One run between the callbacks of hooks, as TensorFlow's protocol has it, and the calls of after-run hooks that follow."""

from cpython.object cimport PyObject, PyTypeObject

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import session_run_hook

from fastsup.core.recording cimport SpanStats
from fastsup.core.spans cimport fs_span_enter, fs_span_leave
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.session.recorded_session cimport RecordedSession
from fastsup.train.session.run_requests import merge_feeds, merge_run_options
from fastsup.train.scheduler.scheduled_hook cimport ScheduledHookBase
from fastsup.train.scheduler.step_requests cimport StepRequest, request_for_step
from fastsup.train.scheduler.step_view cimport FETCHED_STEP, UNUSED_STEP, StepView

cdef object SessionRunArgs = session_run_hook.SessionRunArgs
cdef object SessionRunContext = session_run_hook.SessionRunContext
cdef object SessionRunValues = session_run_hook.SessionRunValues
cdef object RunOptions = config_pb2.RunOptions
cdef object RunMetadata = config_pb2.RunMetadata

# In place of the result of a hook whose request is fetched.
cdef object FETCHED = object()


cdef object new_named_tuple(object kind, object first, object second, object third):
    """A named tuple of three. Its constructor is skipped: one is made for each hook and run."""
    cdef tuple iterable = ((first, second, third),)
    return (<PyTypeObject*> tuple).tp_new(kind, <PyObject*> iterable, NULL)


cdef HookedRun hooked_run(
    RecordedSession session, SessionRunner runner, HookScheduler scheduler, list called, object fetches,
    object feed_dict, object options, object run_metadata
):
    """A run for these fetches, with the calls of some hooks around it.

    Args:
      session: the session that owns the hooks.
      runner: the session that runs it, and
      scheduler: the schedules of its hooks; both None if the wrapped session isn't a `fastsup.Session`.
      called: the hooks to call in the run, in their order.
      fetches, feed_dict, options, run_metadata: as for `tf.compat.v1.Session.run`.
    """
    cdef HookedRun run = HookedRun.__new__(HookedRun)
    run.session = session
    run.runner = runner
    run.scheduler = scheduler
    run.called = called
    run.fetches = fetches
    run.feed_dict = feed_dict
    run.has_options = options is not None or run_metadata is not None
    run.options = options or RunOptions()
    run.metadata = run_metadata or RunMetadata()
    run.context = SessionRunContext(new_named_tuple(SessionRunArgs, fetches, feed_dict, None), session._sess)
    run.trace = session.trace_now()
    return run


cdef class HookedRun:
    """A run between the callbacks of some hooks. Made by `hooked_run`, for one `run`."""

    cdef object run(self, StepView* view):
        """Makes the run. `view`: its view, opened; NULL without a scheduler."""
        self.call_before_run(view)
        if self.scheduler is not None:
            self.find_step(view)
        self.collect_requests(view)
        values = self.fetch()
        self.distribute_results(values)
        if self.scheduler is not None:
            for hook in self.called:
                self.scheduler.note_called(hook)
            self.scheduler.close_step(view, values[len(values) - 1] if view.source == FETCHED_STEP else None)
        self.call_after_run(view)
        return values[0]

    cdef int call_before_run(self, StepView* view) except -1:
        """Calls `before_run` of each."""
        cdef Py_ssize_t i, j
        self.wanted = [None] * len(self.called)
        for i in range(len(self.called)):
            hook = self.called[i]
            if self.scheduler is not None:
                self.scheduler.sync_before_run(hook)
            request = self.session.before_run(self.trace, hook, self.context)
            if request is None:
                continue
            if type(request) is SessionRunArgs:
                wanted, feeds, run_options = (<tuple> request)[0], (<tuple> request)[1], (<tuple> request)[2]
            else:
                wanted, feeds, run_options = request.fetches, request.feed_dict, request.options
            if wanted is not None:
                self.wanted[i] = wanted
                if self.scheduler is None or self.scheduler.hooks.has_twins:
                    # Of a hook that is there twice, what it asks for last counts.
                    for j in range(i):
                        if self.called[j] is hook:
                            self.wanted[j] = None
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

    cdef int find_step(self, StepView* view) except -1:
        """Finds out who asks for the global step, and where it stands after what the hooks have done."""
        cdef bint asked_for = False
        self.step_requests = [
            None if wanted is None else request_for_step(self.scheduler.count, wanted) for wanted in self.wanted
        ]
        for request in self.step_requests:
            if request is not None:
                asked_for = True
                break
        if asked_for or view.source != UNUSED_STEP:
            self.scheduler.reopen_step(view, self.feed_dict, self.hook_feeds is not None)
        if asked_for:
            self.step = self.scheduler.known_step(view)
        return 0

    cdef int collect_requests(self, StepView* view) except -1:
        """Says what is to be fetched, and gives the others their results."""
        cdef Py_ssize_t i
        cdef StepRequest step_request
        self.requests = [self.fetches]
        self.fetching = []
        self.results = [None] * len(self.called)
        for i in range(len(self.called)):
            wanted = self.wanted[i]
            if self.step is not None and self.step_requests[i] is not None:
                step_request = self.step_requests[i]
                wanted = step_request.rest
                if wanted is None:
                    self.results[i] = step_request.build(self.step, None)
            if wanted is not None:
                self.results[i] = FETCHED
                self.fetching.append(self.called[i])
                self.requests.append(wanted)
        if self.scheduler is not None and view.source == FETCHED_STEP:
            # As if a hook had asked for it.
            self.fetching.append(self.scheduler)
            self.requests.append(self.scheduler.step_read)
        return 0

    cdef list fetch(self):
        """The run itself: what the caller gets, and then what is for each of `fetching`."""
        cdef SpanStats runtime = None
        if self.trace is not NULL:
            runtime = self.session.stats_of_asked(self.scheduler, self.fetches, self.fetching, self.requests)
        if self.scheduler is not None and not self.has_options and not self.runner.fills_metadata:
            if self.trace is NULL:
                return self.runner.run(self.requests, self.feed_dict)
            plan = self.runner.find_plan(self.requests, self.feed_dict) if self.runner.liveness.open else None
            return self.runner.run_in_spans(self.trace, runtime, plan, self.requests, self.feed_dict)
        if self.trace is not NULL:
            fs_span_enter(self.trace, &runtime.c)
        if self.scheduler is not None:
            values = self.runner.run(self.requests, self.feed_dict, self.options, self.metadata)
        else:
            # A session of somebody else's making sees what TensorFlow's would give it.
            fetches = {"caller": self.fetches}
            fetches.update(zip(self.fetching, self.requests[1:]))
            fetched = self.session._sess.run(
                fetches=fetches, feed_dict=self.feed_dict, options=self.options, run_metadata=self.metadata
            )
            values = [fetched["caller"]] + [fetched[hook] for hook in self.fetching]
        if self.trace is not NULL:
            fs_span_leave(self.trace)
        return values

    cdef int distribute_results(self, list values) except -1:
        """Gives those that have asked what was fetched for them."""
        cdef Py_ssize_t i, n = 0
        cdef dict by_hook = None
        if self.scheduler is None or self.scheduler.hooks.has_twins:
            # A hook that is there twice gets what it has asked for last, as with results that are kept by hook.
            by_hook = {id(hook): i for i, hook in enumerate(self.called) if self.results[i] is not None}
        for i in range(len(self.called)):
            if self.results[i] is FETCHED:
                n += 1
                self.results[i] = values[n]
                if self.step is not None and self.step_requests[i] is not None:
                    self.results[i] = (<StepRequest> self.step_requests[i]).build(self.step, values[n])
        if by_hook is not None:
            self.results = [self.results[by_hook[id(hook)]] if id(hook) in by_hook else None for hook in self.called]
        return 0

    cdef int call_after_run(self, StepView* view) except -1:
        """Calls `after_run` of the hooks called in the run, and of the after-run hooks that are due, in their order."""
        cdef Py_ssize_t i = 0
        cdef list hooks = list(self.session._hooks)
        hook = None
        try:
            for hook in hooks:
                if i < len(self.called) and hook is self.called[i]:
                    i += 1
                    self.call_one_after_run(view, hook, self.results[i - 1])
                elif self.scheduler is not None and self.scheduler.is_due_after_run(view, hook):
                    self.scheduler.sync_after_run(view, hook)
                    self.call_one_after_run(view, hook, self.scheduler.step_before(view))
        except BaseException:
            if self.scheduler is not None:
                self.scheduler.skip_behind(view, hook, hooks)
            raise
        return 0

    cdef int call_one_after_run(self, StepView* view, object hook, object result) except -1:
        values = new_named_tuple(SessionRunValues, result, self.options, self.metadata)
        if self.scheduler is None or not isinstance(hook, ScheduledHookBase):
            return self.session.after_run(self.trace, hook, self.context, values)
        self.scheduler.tell_step_after(view, <ScheduledHookBase> hook)
        try:
            return self.session.after_run(self.trace, hook, self.context, values)
        finally:
            (<ScheduledHookBase> hook).counted_step = None
