"""The session that calls the hooks around each run, and leaves out those that have nothing to do in it."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.training import session_run_hook

from fastsup.core.recorder cimport (
    Cell,
    Recorder,
    active_recorder,
    active_track,
    end_scope,
    fs_scope,
    fs_span_drop,
    fs_span_enter,
    fs_span_leave,
    fs_span_leave_last,
    fs_step_next,
    fs_track,
    program_wide,
)
from fastsup.core.recorder import recorder_of
from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.dispatch cimport Dispatch
from fastsup.train.hook_errors import tell_hooks
from fastsup.train.recorded_hooks import count_values, marked, watch
from fastsup.train.run_requests import merge_feeds, merge_run_options
from fastsup.train.scheduled cimport ScheduledHook
from fastsup.train.stop_signals cimport hold_signals, release_signals
from fastsup.train.wrapped_sessions cimport Wrapped
from fastsup.train.wrapped_sessions import native_kinds

cdef object SessionRunArgs = session_run_hook.SessionRunArgs
cdef object SessionRunContext = session_run_hook.SessionRunContext
cdef object SessionRunValues = session_run_hook.SessionRunValues
cdef object new_tuple = tuple.__new__
cdef object RunOptions = config_pb2.RunOptions
cdef object RunMetadata = config_pb2.RunMetadata


cdef class Hooked(Wrapped):
    """A session that calls hooks around each run.

    Args:
      sess: the session to run in.
      hooks: iterable of `SessionRunHook`.
    """

    def __init__(self, sess, hooks):
        Wrapped.__init__(self, sess)
        self._hooks = hooks
        self._should_stop = False
        self.program_recorder = program_wide()

    def _record(self, profiler):
        """Records every run from now on.

        Args:
          profiler: a `HookProfiler`; or None, to leave it to the one that is on for the whole program.
        """
        self.recorder = recorder_of(profiler)

    def _check_stop(self):
        return self._should_stop

    def request_stop(self):
        """Makes `should_stop` true from now on."""
        self._should_stop = True

    def close(self):
        """Closes the session."""
        self._settle_hooks()
        self._forget_hooks()
        Wrapped.close(self)

    def _forget_hooks(self):
        if self.known_to is not None:
            self.unwatch()
            self.known_to.forget(self._hooks)
            self.known_to.interrupt()
            self.known_to = self.unwatch = None

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step, between the hooks' `before_run` and `after_run`.

        Raises:
          RuntimeError: a stop was requested before; or two hooks, or a hook and the caller, feed the same tensor.
        """
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        try:
            return self.run_unstopped(fetches, feed_dict, options, run_metadata)
        except BaseException as error:
            self.tell_hooks(error)
            raise

    def _settle_hooks(self):
        if self.dispatch is not None:
            self.dispatch.settle()

    cdef int tell_hooks(self, object error) except -1:
        context, self.context = self.context, None
        tell_hooks(self._hooks, context, error)
        return 0

    cdef object run_native(self, object fetches, object feed_dict, bint hooks):
        if not hooks:
            return self._sess.run(fetches, feed_dict=feed_dict)
        if self.stop_native():
            raise RuntimeError("Run called even after should_stop requested.")
        return self.run_unstopped(fetches, feed_dict, None, None)

    cdef bint stop_native(self) except -1:
        if self._should_stop:
            return True
        if self.dispatch is not None and self._sess is self.session_seen and not self._wrapped_is_stoppable:
            return False
        return Wrapped.stop_native(self)

    cdef bint has_schedules(self) except -1:
        """Whether hooks may be left out. Not in a session of somebody else's making, which may do anything in run."""
        if self._sess is not self.session_seen:
            self.session_seen = self._sess
            self.runner = self.dispatch = None
            if (
                isinstance(self._sess, SessionRunner)
                and type(self._sess).run is SessionRunner.run
                and "run" not in self._sess.__dict__
            ):
                self.runner = self._sess
                self.dispatch = Dispatch(self._hooks, self.runner)
        return self.dispatch is not None

    cdef Recorder recorder_now(self):
        """What records this session, or None."""
        if self.recorder is not None:
            return self.recorder
        return None if self.program_recorder[0] is NULL else <Recorder> self.program_recorder[0]

    cdef fs_track* track_now(self) noexcept:
        """Where the spans of the run under way go; NULL if it isn't recorded."""
        if self.recorder is None and self.program_recorder[0] is NULL:
            return NULL
        # A session of another recorder may be the one whose hook runs this one.
        return active_track() if active_recorder() is self.known_to else NULL

    cdef int watch_hooks(self, Recorder recorder) except -1:
        """Makes the hooks known to a recorder, in their order."""
        self._forget_hooks()
        recorder.interrupt()
        self.unwatch = watch(recorder, self._hooks)
        self.known_to = recorder
        self.watched_with = self.watching_seen = None
        return 0

    cdef object run_unstopped(self, object fetches, object feed_dict, object options, object run_metadata):
        if self.recorder is None and self.program_recorder[0] is NULL:
            return self.run_on(NULL, fetches, feed_dict, options, run_metadata)
        return self.run_recorded(fetches, feed_dict, options, run_metadata)

    cdef object run_recorded(self, object fetches, object feed_dict, object options, object run_metadata):
        """A run as a step of the profile."""
        cdef fs_scope scope
        cdef Recorder recorder = self.recorder_now()
        if self.known_to is not recorder:
            self.watch_hooks(recorder)
        recorder.begin(&scope, True)
        try:
            if recorder.step_markers:
                with marked(recorder):
                    return self.run_on(scope.track, fetches, feed_dict, options, run_metadata)
            return self.run_on(scope.track, fetches, feed_dict, options, run_metadata)
        finally:
            end_scope(&scope)

    cdef object run_on(self, fs_track* track, object fetches, object feed_dict, object options, object run_metadata):
        cdef Plan plan
        cdef list called
        if not self.has_schedules():
            return self.run_calling(list(self._hooks), fetches, feed_dict, options, run_metadata)
        if options is None and run_metadata is None:
            plan = self.runner.find_plan(fetches, feed_dict)
            if plan is not None:
                if not self.dispatch.nothing_due(plan):
                    called = self.dispatch.due()
                    if called:
                        return self.run_calling(called, fetches, feed_dict, None, None)
                if len(plan.feeds) > 0 or self.dispatch.step_fetched or len(self.dispatch.watched_fetches) > 0:
                    return self.run_leaving_out(plan, fetches, feed_dict)
                if track is not NULL:
                    fs_span_enter(track, &self.known_to.runtime_alone(fetches).c)
                values = self.runner.execute(plan, None)
                if track is not NULL:
                    fs_span_leave_last(track)
                if self.dispatch.idle_run_ended():
                    self._call_left_out(fetches, None, ())
                if track is NULL:
                    return plan.structure.build(values)
                return self.runner.build_in_span(track, plan, values)
        if self.dispatch.is_outdated():
            self.dispatch.refresh()
        self.dispatch.call_all()
        return self.run_calling(list(self._hooks), fetches, feed_dict, options, run_metadata)

    cdef object run_leaving_out(self, Plan plan, object fetches, object feed_dict):
        """A run with feeds, or with values that hooks watch, in which none of them is called."""
        cdef bint held = hold_signals()
        try:
            return self.run_leaving_out_held(plan, fetches, feed_dict)
        finally:
            release_signals(held)

    cdef object run_leaving_out_held(self, Plan plan, object fetches, object feed_dict):
        cdef Dispatch dispatch = self.dispatch
        cdef list extra = dispatch.watched_fetches
        cdef tuple feeds = None
        cdef list rejected = None
        cdef object step = None
        cdef Py_ssize_t i
        cdef fs_track* track = self.track_now()
        cdef Cell runtime = None if track is NULL else self.cell_of_watched(self.known_to, fetches)
        if dispatch.step_fetched:
            extra = [*extra, dispatch.step_read]
        if extra:
            fetches = [fetches, *extra]
        if track is not NULL:
            values = self.runner.run_in_spans(track, runtime, fetches, feed_dict)
        else:
            if extra:
                plan = self.runner.find_plan(fetches, feed_dict)
            if plan is not None and plan.feeds:
                feeds = plan.convert_feeds(feed_dict)
            if plan is None or (feeds is None and plan.feeds):
                values = self._sess.run(fetches, feed_dict)
            else:
                values = plan.structure.build(self.runner.execute(plan, feeds))
        if extra:
            if dispatch.step_fetched:
                step = values[len(extra)]
            for i in range(len(dispatch.watching)):
                if not (<ScheduledHook> dispatch.watching[i]).accepts(values[i + 1]):
                    rejected = rejected or []
                    rejected.append((dispatch.watching[i], values[i + 1]))
            fetches, values = fetches[0], values[0]
        dispatch.run_ended(None, step)
        if rejected is not None or dispatch.left_out_too_much():
            self._call_left_out(fetches, feed_dict, rejected or ())
        return values

    cdef Cell cell_of_watched(self, Recorder recorder, object fetches):
        """Where the runtime's time goes in a run for these fetches and what hooks watch."""
        if self.watching_seen is not self.dispatch.watching or self.watched_with is not fetches:
            names = []
            for hook in self.dispatch.watching:
                name = recorder.cells_of(hook).name
                recorder.note_values(name, 1)
                names.append(name)
            self.watched_cell = recorder.runtime_cell(fetches, tuple(names))
            self.watching_seen = self.dispatch.watching
            self.watched_with = fetches
        return self.watched_cell

    cdef object loop_native(self, object fetches, int64_t* left, object stop_event):
        """Steps until a hook is due, or anything else comes between."""
        cdef Dispatch dispatch
        cdef Plan plan
        cdef int64_t steps = 0
        cdef object result
        cdef void* program = self.program_recorder[0]
        cdef Recorder recorder = self.recorder_now()
        if self.stop_native():
            raise RuntimeError("Run called even after should_stop requested.")
        if recorder is not None and (self.known_to is not recorder or recorder.step_markers):
            stop_event = None
        if stop_event is not None and self.has_schedules():
            dispatch = self.dispatch
            plan = self.runner.find_plan(fetches, None)
            if plan is not None and not plan.feeds:
                steps = min(dispatch.idle_runs(plan), left[0])
        if steps < 1:
            result = self.run_unstopped(fetches, None, None, None)
            left[0] -= 1
            return result
        if recorder is not None:
            return self.loop_recorded(recorder, plan, fetches, steps, left, stop_event)
        while True:
            values = self.runner.execute(plan, None)
            left[0] -= 1
            if dispatch.idle_run_ended():
                self._call_left_out(fetches, None, ())
                break
            steps -= 1
            if not self.may_go_on(steps, stop_event) or self.program_recorder[0] is not program:
                break
        return plan.structure.build(values)

    cdef bint may_go_on(self, int64_t steps, object stop_event) except -1:
        """Whether the next step of `loop_native` may follow at once. Begins it if so."""
        # A loop in C otherwise never lets a signal handler run.
        PyErr_CheckSignals()
        if steps == 0 or stop_event._flag or self._should_stop or self.dispatch.is_outdated():
            return False
        if self.dispatch.comes_due_by_time():
            return False
        self.dispatch.begin_next_run()
        return True

    cdef object loop_recorded(
        self, Recorder recorder, Plan plan, object fetches, int64_t steps, int64_t* left, object stop_event
    ):
        """The loop of `loop_native`, recorded: two readings of the clock a step."""
        cdef fs_scope scope
        cdef Cell runtime = recorder.runtime_alone(fetches)
        cdef list values
        recorder.begin(&scope, True)
        try:
            fs_span_enter(scope.track, &runtime.c)
            while True:
                values = self.runner.execute(plan, None)
                fs_span_leave(scope.track)
                left[0] -= 1
                if self.dispatch.idle_run_ended():
                    self._call_left_out(fetches, None, ())
                    break
                steps -= 1
                if not self.may_go_on(steps, stop_event) or self.recorder_now() is not recorder:
                    break
                fs_step_next(scope.track, &runtime.c)
            return self.runner.build_in_span(scope.track, plan, values)
        finally:
            end_scope(&scope)

    def _call_left_out(self, fetches, feed_dict, rejected):
        """Calls the hooks that turn out to be needed after a run without them."""
        cdef bint held = hold_signals()
        try:
            self._call_left_out_held(fetches, feed_dict, rejected)
        finally:
            release_signals(held)

    def _call_left_out_held(self, fetches, feed_dict, rejected):
        cdef fs_track* track = self.track_now()
        context = options = metadata = None
        for hook in list(self._hooks):
            late = self.dispatch.wanted_late(hook)
            if late and self.act(track, hook):
                continue
            if context is None and (late or rejected):
                context = SessionRunContext(original_args=SessionRunArgs(fetches, feed_dict), session=self._sess)
                options, metadata = RunOptions(), RunMetadata()
            for watching, value in rejected:
                if watching is hook:
                    if track is not NULL:
                        fs_span_enter(track, &self.known_to.cells_of(hook).after_run.c)
                    hook.after_run(context, SessionRunValues(results=value, options=options, run_metadata=metadata))
                    if track is not NULL:
                        fs_span_leave(track)
            if late:
                self.call_late(hook, context, options, metadata)
        self._should_stop = self._should_stop or (context is not None and context.stop_requested)

    cdef int call_late(self, object hook, object run_context, object options, object metadata) except -1:
        """Calls a hook after a run that it was left out of, with what it would have got from the run."""
        cdef fs_track* track = self.track_now()
        self.dispatch.catch_up_late(hook)
        if track is not NULL:
            fs_span_enter(track, &self.known_to.cells_of(hook).before_run.c)
        request = hook.before_run(run_context)
        if track is not NULL:
            fs_span_leave(track)
        results = self.dispatch.late_values(request.fetches)
        if track is not NULL:
            fs_span_enter(track, &self.known_to.cells_of(hook).after_run.c)
        hook.after_run(run_context, SessionRunValues(results=results, options=options, run_metadata=metadata))
        if track is not NULL:
            fs_span_leave(track)
        return 0

    cdef bint act(self, fs_track* track, object hook) except -1:
        """Has a hook that was left out of the run act on the step after it, in place of its `after_run`."""
        cdef bint acted
        if track is NULL:
            return self.dispatch.act(hook)
        fs_span_enter(track, &self.known_to.cells_of(hook).after_run.c)
        acted = self.dispatch.act(hook)
        if acted:
            fs_span_leave(track)
        else:
            fs_span_drop(track)
        return acted

    cdef object run_calling(self, list called, object fetches, object feed_dict, object options, object run_metadata):
        """A run between the callbacks of some hooks, as TensorFlow's protocol for all of them has it."""
        cdef bint held = hold_signals()
        try:
            return self.run_calling_held(called, fetches, feed_dict, options, run_metadata)
        finally:
            release_signals(held)

    cdef object run_calling_held(
        self, list called, object fetches, object feed_dict, object options, object run_metadata
    ):
        cdef Dispatch dispatch = self.dispatch
        cdef bint plain = dispatch is not None and options is None and run_metadata is None
        cdef list asked = []
        cdef list requests = [fetches]
        cdef dict results = {}
        cdef dict hook_feeds = None
        cdef dict known_parts = None
        cdef Py_ssize_t i
        cdef fs_track* track = self.track_now()
        cdef Cell runtime = None
        context = self.context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self._sess)
        options = options or RunOptions()
        for hook in called:
            if dispatch is not None:
                dispatch.catch_up(hook)
            if track is not NULL:
                fs_span_enter(track, &self.known_to.cells_of(hook).before_run.c)
            request = hook.before_run(context)
            if track is not NULL:
                fs_span_leave(track)
            if request is None:
                continue
            wanted = request.fetches
            if wanted is not None:
                known = dispatch.known_values(hook, wanted) if plain else None
                if known is not None:
                    results[id(hook)] = known
                    wanted = None
                    if type(known) is dict:
                        known_parts = known_parts or {}
                        known_parts[id(hook)] = known
                        wanted = {key: fetch for key, fetch in request.fetches.items() if key not in known} or None
            if wanted is not None:
                asked.append(hook)
                requests.append(wanted)
            feeds = request.feed_dict
            if feeds:
                hook_feeds = hook_feeds or {}
                merge_feeds(hook_feeds, feeds, "Same tensor is fed by two hooks.")
            if request.options:
                merge_run_options(options, request.options)
                plain = False
        if hook_feeds:
            if feed_dict:
                merge_feeds(hook_feeds, feed_dict, "Same tensor is fed by a SessionRunHook and user.")
            feed_dict = hook_feeds
        run_metadata = run_metadata or RunMetadata()
        if dispatch is not None and dispatch.step_fetched:
            # As if a hook had asked for it, under a key that no hook is.
            asked.append(dispatch)
            requests.append(dispatch.step_read)
        if track is not NULL:
            runtime = self.cell_of_asked(fetches, asked, requests)
        if plain and track is not NULL:
            values = self.runner.run_in_spans(track, runtime, requests, feed_dict)
        elif plain:
            values = self.runner.run(requests, feed_dict)
        else:
            # A session of somebody else's making sees what TensorFlow's would give it.
            fetched = {"caller": fetches}
            fetched.update(zip(asked, requests[1:]))
            if track is not NULL:
                fs_span_enter(track, &runtime.c)
            fetched = self._sess.run(
                fetches=fetched, feed_dict=feed_dict, options=options, run_metadata=run_metadata
            )
            if track is not NULL:
                fs_span_leave(track)
            values = [fetched["caller"]] + [fetched[hook] for hook in asked]
        for i in range(len(asked)):
            results[id(asked[i])] = values[i + 1]
        if known_parts is not None:
            for i in range(len(asked)):
                if id(asked[i]) in known_parts:
                    results[id(asked[i])] = {**known_parts[id(asked[i])], **values[i + 1]}
        if dispatch is not None:
            dispatch.run_ended(called, values[len(values) - 1] if dispatch.step_fetched else None)
        i = 0
        for hook in list(self._hooks):
            # The hooks that are called come in the order of all of them.
            if i < len(called) and hook is called[i]:
                i += 1
                run_values = new_tuple(SessionRunValues, (results.get(id(hook)), options, run_metadata))
                if track is not NULL:
                    fs_span_enter(track, &self.known_to.cells_of(hook).after_run.c)
                hook.after_run(context, run_values)
                if track is not NULL:
                    fs_span_leave(track)
            elif dispatch is not None and dispatch.wanted_late(hook) and not self.act(track, hook):
                self.call_late(hook, context, options, run_metadata)
        self._should_stop = self._should_stop or context.stop_requested
        self.context = None
        return values[0]

    cdef Cell cell_of_asked(self, object fetches, list asked, list requests):
        """Where the runtime's time goes in a run for these fetches and those of the hooks that have asked for some."""
        cdef list names = []
        cdef Py_ssize_t i
        for i in range(len(asked)):
            if asked[i] is self.dispatch:
                # The global step, for hooks that were left out.
                names.append("session")
                continue
            name = self.known_to.cells_of(asked[i]).name
            if name not in self.known_to.values_fetched:
                self.known_to.note_values(name, count_values(requests[i + 1]))
            names.append(name)
        return self.known_to.runtime_cell(fetches, tuple(names))


native_kinds.insert(0, Hooked)
