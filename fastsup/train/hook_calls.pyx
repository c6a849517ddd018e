"""Runs between the callbacks of hooks: of those that are called for a run, as TensorFlow's protocol has it, and of those
that turn out to be wanted after a run without them."""

from cpython.object cimport PyObject, PyTypeObject

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import session_run_hook

from fastsup.core.recorded cimport Cell
from fastsup.core.recorder cimport active_recorder
from fastsup.core.spans cimport fs_span_enter, fs_span_leave, fs_track
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.dispatch cimport Dispatch, Look
from fastsup.train.recorded_session cimport RecordedSession
from fastsup.train.run_requests import merge_feeds, merge_run_options
from fastsup.train.scheduled cimport ScheduledHook
from fastsup.train.step_requests cimport StepRequest, request_for_step

cdef object SessionRunArgs = session_run_hook.SessionRunArgs
cdef object SessionRunContext = session_run_hook.SessionRunContext
cdef object SessionRunValues = session_run_hook.SessionRunValues
cdef object RunOptions = config_pb2.RunOptions
cdef object RunMetadata = config_pb2.RunMetadata

# In place of the result of a hook whose request is fetched.
cdef object FETCHED = object()


cdef object new_named_tuple(object kind, object first, object second, object third):
    """A named tuple of three, made of no arguments: there is one for each hook and run."""
    cdef tuple iterable = ((first, second, third),)
    return (<PyTypeObject*> tuple).tp_new(kind, <PyObject*> iterable, NULL)


cdef HookCalls calls_around(
    RecordedSession session, SessionRunner runner, Dispatch dispatch, list called, object fetches, object feed_dict,
    object options, object run_metadata
):
    """A run for these fetches, and the calls of some hooks around it.

    Args:
      session: the session with the hooks.
      runner: the session that runs it, and
      dispatch: the schedules of its hooks; both None if it is somebody else's.
      called: the hooks to call, in their order.
      fetches, feed_dict, options, run_metadata: as for `tf.compat.v1.Session.run`.
    """
    cdef HookCalls calls = HookCalls.__new__(HookCalls)
    calls.session = session
    calls.runner = runner
    calls.dispatch = dispatch
    calls.called = called
    calls.fetches = fetches
    calls.feed_dict = feed_dict
    calls.has_options = options is not None or run_metadata is not None
    calls.options = options or RunOptions()
    calls.metadata = run_metadata or RunMetadata()
    calls.context = SessionRunContext(new_named_tuple(SessionRunArgs, fetches, feed_dict, None), session._sess)
    return calls


cdef class HookCalls:
    """A run between the callbacks of some hooks. Made by `calls_around`, for one `run`."""

    cdef object run(self, Look* look):
        """The run, with all that hooks do around it. `look`: what was seen before it; NULL without schedules."""
        self.track = self.session.track_now()
        self.ask()
        if self.dispatch is not None:
            self.find_step(look)
        self.collect_requests(look)
        values = self.fetch()
        self.give_results(values)
        if self.dispatch is not None:
            self.dispatch.run_ended(look, self.called, values[len(values) - 1] if look.step_fetched else None)
        self.tell(look)
        return values[0]

    cdef int ask(self) except -1:
        """Calls `before_run` of each."""
        cdef Py_ssize_t i, j
        self.wanted = [None] * len(self.called)
        for i in range(len(self.called)):
            hook = self.called[i]
            if self.dispatch is not None:
                self.dispatch.catch_up(hook)
            request = self.session.before_run(self.track, hook, self.context)
            if request is None:
                continue
            if type(request) is SessionRunArgs:
                wanted, feeds, run_options = (<tuple> request)[0], (<tuple> request)[1], (<tuple> request)[2]
            else:
                wanted, feeds, run_options = request.fetches, request.feed_dict, request.options
            if wanted is not None:
                self.wanted[i] = wanted
                if self.dispatch is None or self.dispatch.has_twins:
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

    cdef int find_step(self, Look* look) except -1:
        """Finds out who asks for the global step, and where it stands after what the hooks have done."""
        cdef bint asked_for = False
        self.step_requests = [
            None if wanted is None else request_for_step(self.dispatch.count, wanted) for wanted in self.wanted
        ]
        for request in self.step_requests:
            if request is not None:
                asked_for = True
                break
        if asked_for or self.dispatch.needs_step:
            self.dispatch.look_again(look, self.feed_dict, self.hook_feeds is not None)
        if asked_for:
            self.step = self.dispatch.known_step(look)
        return 0

    cdef int collect_requests(self, Look* look) except -1:
        """Says what is to be fetched, and gives the others their results."""
        cdef Py_ssize_t i
        cdef StepRequest step_request
        self.requests = [self.fetches]
        self.asking = []
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
                self.asking.append(self.called[i])
                self.requests.append(wanted)
        if self.dispatch is not None and look.step_fetched:
            # As if a hook had asked for it, under a key that no hook is.
            self.asking.append(self.dispatch)
            self.requests.append(self.dispatch.step_read)
        return 0

    cdef list fetch(self):
        """The run itself: what the caller gets, and then what is for each of `asking`."""
        cdef Cell runtime = None
        if self.track is not NULL:
            runtime = self.session.cell_of_asked(self.dispatch, self.fetches, self.asking, self.requests)
        if self.dispatch is not None and not self.has_options and not self.runner.fills_metadata:
            if self.track is NULL:
                return self.runner.run(self.requests, self.feed_dict)
            plan = self.runner.find_plan(self.requests, self.feed_dict) if self.runner.liveness.open else None
            return self.runner.run_in_spans(self.track, runtime, plan, self.requests, self.feed_dict)
        if self.track is not NULL:
            fs_span_enter(self.track, &runtime.c)
        if self.dispatch is not None:
            values = self.runner.run(self.requests, self.feed_dict, self.options, self.metadata)
        else:
            # A session of somebody else's making sees what TensorFlow's would give it.
            fetches = {"caller": self.fetches}
            fetches.update(zip(self.asking, self.requests[1:]))
            fetched = self.session._sess.run(
                fetches=fetches, feed_dict=self.feed_dict, options=self.options, run_metadata=self.metadata
            )
            values = [fetched["caller"]] + [fetched[hook] for hook in self.asking]
        if self.track is not NULL:
            fs_span_leave(self.track)
        return values

    cdef int give_results(self, list values) except -1:
        """Gives those that have asked what was fetched for them."""
        cdef Py_ssize_t i, n = 0
        cdef dict by_hook = None
        if self.dispatch is None or self.dispatch.has_twins:
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

    cdef int tell(self, Look* look) except -1:
        """Calls `after_run` of each, and of those that the run makes due."""
        cdef Py_ssize_t i = 0
        cdef list hooks = list(self.session._hooks)
        hook = None
        try:
            for hook in hooks:
                # The hooks that are called come in the order of all of them.
                if i < len(self.called) and hook is self.called[i]:
                    values = new_named_tuple(SessionRunValues, self.results[i], self.options, self.metadata)
                    i += 1
                    if self.dispatch is not None and isinstance(hook, ScheduledHook):
                        after_run_told(self.session, self.dispatch, look, self.track, hook, self.context, values)
                    else:
                        self.session.after_run(self.track, hook, self.context, values)
                elif self.dispatch is not None and self.dispatch.wanted_late(look, hook):
                    if self.dispatch.can_act(look, <ScheduledHook> hook):
                        act(self.dispatch, look, self.track, hook)
                    else:
                        call_late(
                            self.session, self.dispatch, look, self.track, hook, self.context, self.options, self.metadata
                        )
        except BaseException:
            if self.dispatch is not None:
                self.dispatch.failed_at(hook, hooks)
            raise
        return 0


cdef object call_left_out(
    RecordedSession session, Dispatch dispatch, Look* look, object fetches, object feed_dict, object rejected
):
    """Calls the hooks that turn out to be needed after a run without them.

    Args:
      session: the session with the hooks.
      dispatch: their schedules.
      look: what was seen before the run.
      fetches, feed_dict: what was run.
      rejected: the hooks that have to see what they watch, each with its value.

    Returns:
      Whether a hook has requested a stop.
    """
    context = options = metadata = None
    hooks = list(session._hooks)
    hook = None
    cdef fs_track* track = session.track_now()
    try:
        for hook in hooks:
            late = dispatch.wanted_late(look, hook)
            if late and dispatch.can_act(look, <ScheduledHook> hook):
                act(dispatch, look, track, hook)
                continue
            if context is None and (late or rejected):
                context = SessionRunContext(new_named_tuple(SessionRunArgs, fetches, feed_dict, None), session._sess)
                options, metadata = RunOptions(), RunMetadata()
            for watching, value in rejected:
                if watching is hook:
                    values = new_named_tuple(SessionRunValues, value, options, metadata)
                    session.after_run(track, hook, context, values)
            if late:
                call_late(session, dispatch, look, track, hook, context, options, metadata)
    except BaseException:
        dispatch.failed_at(hook, hooks)
        raise
    return context is not None and context.stop_requested


cdef int call_late(
    RecordedSession session, Dispatch dispatch, Look* look, fs_track* track, object hook, object context, object options,
    object metadata
) except -1:
    """Calls a hook after a run that it was left out of, with what it would have got from the run."""
    dispatch.catch_up_late(hook)
    request = session.before_run(track, hook, context)
    results = dispatch.late_values(look, request.fetches)
    session.after_run(track, hook, context, new_named_tuple(SessionRunValues, results, options, metadata))
    return 0


cdef int after_run_told(
    RecordedSession session, Dispatch dispatch, Look* look, fs_track* track, ScheduledHook hook, object context,
    object values
) except -1:
    """Calls `after_run` of a hook that may ask where the global step stands."""
    dispatch.tell_step(look, hook)
    try:
        session.after_run(track, hook, context, values)
    finally:
        hook.counted_step = None
    return 0


cdef int act(Dispatch dispatch, Look* look, fs_track* track, object hook) except -1:
    """Has a hook act on the step, which stands for its `after_run`."""
    if track is NULL:
        return dispatch.act(look, <ScheduledHook> hook)
    fs_span_enter(track, &active_recorder().cells_of(hook).after_run.c)
    dispatch.act(look, <ScheduledHook> hook)
    fs_span_leave(track)
    return 0
