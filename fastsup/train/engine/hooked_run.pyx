"""One run between the callbacks of hooks, as TensorFlow's protocol has it, and the calls of after-run hooks that follow."""

from cpython.object cimport PyObject, PyTypeObject

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import session_run_hook

from fastsup.core.probe cimport Part
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.scheduler.hook_scheduler cimport HookScheduler
from fastsup.train.scheduler.scheduled_hook cimport ScheduledHookBase
from fastsup.train.scheduler.step_requests cimport StepRequest, request_for_step
from fastsup.train.scheduler.run_snapshot cimport FETCHED_STEP, UNUSED_STEP, RunSnapshot
from fastsup.train.engine.merged_requests import merge_feeds, merge_run_options
from fastsup.train.engine.run_request cimport RunRequest

cdef object SessionRunArgs = session_run_hook.SessionRunArgs
cdef object SessionRunContext = session_run_hook.SessionRunContext
cdef object SessionRunValues = session_run_hook.SessionRunValues
cdef object RunOptions = config_pb2.RunOptions
cdef object RunMetadata = config_pb2.RunMetadata


cdef object new_named_tuple(object kind, object first, object second, object third):
    """A named tuple of three. Its constructor is skipped: one is made for each hook and run."""
    cdef tuple iterable = ((first, second, third),)
    return (<PyTypeObject*> tuple).tp_new(kind, <PyObject*> iterable, NULL)


cdef HookedRun new_hooked_run(
    object session, SessionRunner runner, HookScheduler scheduler, RunRequest request
):
    """A run with the callbacks of some hooks around it.

    Args:
      session: the wrapped session.
      runner, scheduler: the same session, and the schedules of the hooks; None for a session that isn't a `fastsup.Session`.
      request: the arguments of the run.
    """
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
    """A run between the callbacks of some hooks. Made by `new_hooked_run`, for one `run`."""

    cdef object run(self, RunSnapshot* snapshot):
        """Makes the run. Its `snapshot` is opened if there is a scheduler."""
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
            # After an error, the end of the step ends its parts.
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
                    # Of a hook that is in the list twice, the last request counts.
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
        """Makes the run. Returns the caller's result, the value of each of `fetched`, and the global step if it is fetched."""
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
        """The run in a session that isn't a `fastsup.Session`: such a session gets the arguments that TensorFlow gives."""
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
            # Each entry of a hook that is in the list twice gets the result of its last request.
            by_hook = {
                id(hook): result
                for hook, request, result in zip(self.hooks, self.requests, self.results) if request is not None
            }
            self.results = [by_hook.get(id(hook)) for hook in self.hooks]
        return 0

    cdef int call_after_run(self, RunSnapshot* snapshot, list hooks) except -1:
        """Calls `after_run` of the hooks called in the run, and of the after-run hooks that are due.

        Args:
          snapshot: the run's snapshot, closed; not used without a scheduler.
          hooks: all hooks of the session, in their order.
        """
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
        """Calls `after_run`, which is a part of the step."""
        self.probe.enter(self.probe.callback_part(hook, False))
        hook.after_run(self.context, values)
        self.probe.leave()
        return 0
