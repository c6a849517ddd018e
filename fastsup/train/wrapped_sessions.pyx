"""The sessions that a monitored session is made of, one wrapped in the other, and what a step costs in them.

Recoverable(Coordinated(Hooked(session))). Each can be used, subclassed and replaced by itself, as TensorFlow's can:
calls then go through Python. Where they are as delivered, a step goes through them in C.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t

import sys
from threading import Event

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator as tf_coordinator
from tensorflow.python.training import session_run_hook

from fastsup.runtime.plan cimport Plan
from fastsup.runtime.runner cimport SessionRunner
from fastsup.train.dispatch cimport Dispatch
from fastsup.train.run_requests import merge_feeds, merge_run_options
from fastsup.train.scheduled cimport ScheduledHook

cdef object SessionRunArgs = session_run_hook.SessionRunArgs
cdef object SessionRunContext = session_run_hook.SessionRunContext
cdef object SessionRunValues = session_run_hook.SessionRunValues
cdef object new_tuple = tuple.__new__
cdef object RunOptions = config_pb2.RunOptions
cdef object RunMetadata = config_pb2.RunMetadata
cdef object Coordinator = tf_coordinator.Coordinator

ADVICE = (
    "This error may also occur due to a gRPC failure caused by high memory or network bandwidth usage in the "
    "parameter servers. If this error occurs repeatedly, try increasing the number of parameter servers assigned to "
    "the job. Error: %s"
)


cdef object monitored_session():
    """The module of the public classes: what programs replace in it is looked up when it is needed."""
    return sys.modules["fastsup.train.monitored_session"]


cdef tuple preemption_errors():
    """What is recovered from."""
    return tuple(monitored_session()._PREEMPTION_ERRORS)


cdef Wrapped as_native(object session):
    """The session as one whose steps can be run in C, or None if some of its methods were replaced."""
    if not isinstance(session, Wrapped):
        return None
    cdef object kind = type(session)
    cdef object replaced = getattr(session, "__dict__", ())
    for base in (Recoverable, Coordinated, Hooked, Wrapped):
        if isinstance(session, base):
            break
    for name in ("run", "should_stop", "_check_stop", "run_without_hooks"):
        if getattr(kind, name) is not getattr(base, name) or name in replaced:
            return None
    return session


cdef class Wrapped:
    """A session around another one, to which it hands everything on.

    Args:
      sess: the session to wrap.
    """

    def __init__(self, sess):
        self._sess = sess
        self._wrapped_is_stoppable = isinstance(sess, Wrapped)

    @property
    def graph(self):
        """The graph of the wrapped session."""
        return self._sess.graph

    @property
    def sess_str(self):
        """The execution engine that the wrapped session is connected to."""
        return self._sess.sess_str

    def should_stop(self):
        """Whether the session should not be used any more. True also after `close`."""
        if self._check_stop():
            return True
        if self._sess:
            return self._wrapped_is_stoppable and self._sess.should_stop()
        return True

    def _check_stop(self):
        """A subclass's own reason to stop."""
        return False

    def request_stop(self):
        """Makes `should_stop` true from now on."""
        if self._wrapped_is_stoppable and self._sess is not None:
            self._sess.request_stop()

    def raw_session(self):
        """The innermost session, which no hook sees; None after `close`."""
        return self._sess.raw_session() if isinstance(self._sess, Wrapped) else self._sess

    def close(self):
        """Closes the wrapped session. What a preemption raises meanwhile is logged, not raised."""
        if self._sess:
            try:
                self._sess.close()
            except preemption_errors() as error:
                logging.error(
                    "An error occurred when attempting to close the session. This may be due to a preemption in a "
                    "connected worker or parameter server. Error: %s",
                    error,
                )
            finally:
                self._sess = None

    def run(self, *args, **kwargs):
        """Runs one step in the wrapped session."""
        return self._sess.run(*args, **kwargs)

    def run_step_fn(self, step_fn, raw_session, run_with_hooks):
        """Calls a step function with a StepContext. See `MonitoredSession.run_step_fn`."""
        context = monitored_session().MonitoredSession.StepContext(raw_session, run_with_hooks or self.run)
        return step_fn(context)

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step that no hook sees."""
        if isinstance(self._sess, Wrapped):
            return self._sess.run_without_hooks(fetches, feed_dict)
        return self._sess.run(fetches, feed_dict=feed_dict)

    def _settle_hooks(self):
        """Brings the state of hooks that were left out of runs up to date."""
        if isinstance(self._sess, Wrapped):
            self._sess._settle_hooks()

    cdef Wrapped native_inner(self):
        """The wrapped session, if steps can be run in it in C, else None."""
        if self._sess is not self.inner_seen:
            self.inner_seen = self._sess
            self.inner = as_native(self._sess)
        return self.inner

    cdef object run_native(self, object fetches, object feed_dict, bint hooks):
        cdef Wrapped inner = self.native_inner()
        if inner is not None:
            return inner.run_native(fetches, feed_dict, hooks)
        if not hooks:
            return Wrapped.run_without_hooks(self, fetches, feed_dict)
        return self._sess.run(fetches, feed_dict=feed_dict, options=None, run_metadata=None)

    cdef object run_failed(self, object error, object fetches, object feed_dict):
        """What `run` does about an error that the innermost session has raised."""
        cdef Wrapped inner = self.native_inner()
        if inner is not None:
            return inner.run_failed(error, fetches, feed_dict)
        raise error

    cdef object loop_native(self, object fetches, int64_t* left, object stop_event):
        """Runs at least one step and, where nothing comes between, more: at most `left`, which counts them down."""
        cdef Wrapped inner = self.native_inner()
        cdef object result
        if inner is not None:
            return inner.loop_native(fetches, left, stop_event)
        result = self.run_native(fetches, None, True)
        left[0] -= 1
        return result

    cdef bint stop_native(self) except -1:
        cdef Wrapped inner
        if self._sess is None:
            return True
        inner = self.native_inner()
        if inner is not None:
            return inner.stop_native()
        return self._wrapped_is_stoppable and self._sess.should_stop()


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

    def _check_stop(self):
        return self._should_stop

    def request_stop(self):
        """Makes `should_stop` true from now on."""
        self._should_stop = True

    def close(self):
        """Closes the session."""
        self._settle_hooks()
        Wrapped.close(self)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step, between the hooks' `before_run` and `after_run`.

        Raises:
          RuntimeError: a stop was requested before; or two hooks, or a hook and the caller, feed the same tensor.
        """
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        return self.run_unstopped(fetches, feed_dict, options, run_metadata)

    def _settle_hooks(self):
        if self.dispatch is not None:
            self.dispatch.settle()

    cdef object run_native(self, object fetches, object feed_dict, bint hooks):
        if not hooks:
            return self._sess.run(fetches, feed_dict=feed_dict)
        if self._should_stop or Wrapped.stop_native(self):
            raise RuntimeError("Run called even after should_stop requested.")
        return self.run_unstopped(fetches, feed_dict, None, None)

    cdef bint stop_native(self) except -1:
        return self._should_stop or Wrapped.stop_native(self)

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

    cdef object run_unstopped(self, object fetches, object feed_dict, object options, object run_metadata):
        cdef Plan plan
        cdef list called
        if not self.has_schedules():
            return self.run_calling(list(self._hooks), fetches, feed_dict, options, run_metadata)
        if self.dispatch.is_outdated():
            self.dispatch.refresh()
        if options is None and run_metadata is None:
            plan = self.runner.find_plan(fetches, feed_dict)
            if plan is not None:
                if self.dispatch.anything_due(plan):
                    called = self.dispatch.due()
                    if called:
                        return self.run_calling(called, fetches, feed_dict, None, None)
                return self.run_leaving_out(plan, fetches, feed_dict)
        self.dispatch.call_all()
        return self.run_calling(list(self._hooks), fetches, feed_dict, options, run_metadata)

    cdef object run_leaving_out(self, Plan plan, object fetches, object feed_dict):
        """A run in which no hook is called: only the values that some of them watch are looked at."""
        cdef Dispatch dispatch = self.dispatch
        cdef list extra = dispatch.watched_fetches
        cdef tuple feeds = None
        cdef list rejected = None
        cdef object step = None
        cdef Py_ssize_t i
        if dispatch.step_fetched:
            extra = [*extra, dispatch.step_read]
        if extra:
            fetches = [fetches, *extra]
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
            self._call_left_out(fetches, feed_dict, rejected or [])
        return values

    cdef object loop_native(self, object fetches, int64_t* left, object stop_event):
        """Steps until a hook is due, or anything else comes between."""
        cdef Dispatch dispatch
        cdef Plan plan
        cdef int64_t steps = 0
        cdef object result
        if self._should_stop or Wrapped.stop_native(self):
            raise RuntimeError("Run called even after should_stop requested.")
        if stop_event is not None and self.has_schedules() and not self.dispatch.is_outdated():
            dispatch = self.dispatch
            plan = self.runner.find_plan(fetches, None)
            if plan is not None and not plan.feeds and not dispatch.watched_fetches:
                steps = min(dispatch.idle_runs(plan), left[0])
        if steps < 1:
            result = self.run_unstopped(fetches, None, None, None)
            left[0] -= 1
            return result
        while True:
            values = self.runner.execute(plan, None)
            dispatch.run_ended(None, None)
            left[0] -= 1
            steps -= 1
            # A loop in C otherwise never lets a signal handler run.
            PyErr_CheckSignals()
            if dispatch.left_out_too_much():
                self._call_left_out(fetches, None, [])
                break
            if steps == 0 or stop_event._flag or self._should_stop or dispatch.is_outdated():
                break
            if dispatch.comes_due_by_time():
                break
            dispatch.begin_next_run()
        return plan.structure.build(values)

    def _call_left_out(self, fetches, feed_dict, rejected):
        """Calls the hooks that turn out to be needed after a run without them."""
        context = SessionRunContext(original_args=SessionRunArgs(fetches, feed_dict), session=self._sess)
        options, metadata = RunOptions(), RunMetadata()
        for hook in list(self._hooks):
            for watching, value in rejected:
                if watching is hook:
                    hook.after_run(context, SessionRunValues(results=value, options=options, run_metadata=metadata))
            if self.dispatch.wanted_late(hook):
                self.call_late(hook, context, options, metadata)
        self._should_stop = self._should_stop or context.stop_requested

    cdef int call_late(self, object hook, object run_context, object options, object metadata) except -1:
        """Calls a hook after a run that it was left out of, with what it would have got from the run."""
        self.dispatch.catch_up_late(hook)
        request = hook.before_run(run_context)
        results = self.dispatch.late_values(request.fetches)
        hook.after_run(run_context, SessionRunValues(results=results, options=options, run_metadata=metadata))
        return 0

    cdef object run_calling(self, list called, object fetches, object feed_dict, object options, object run_metadata):
        """A run between the callbacks of some hooks, as TensorFlow's protocol for all of them has it."""
        cdef Dispatch dispatch = self.dispatch
        cdef bint plain = dispatch is not None and options is None and run_metadata is None
        cdef list asked = []
        cdef list requests = [fetches]
        cdef dict results = {}
        cdef dict hook_feeds = None
        cdef dict known_parts = None
        cdef Py_ssize_t i
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self._sess)
        options = options or RunOptions()
        for hook in called:
            if dispatch is not None:
                dispatch.catch_up(hook)
            request = hook.before_run(context)
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
        if plain:
            values = self.runner.run(requests, feed_dict)
        else:
            # A session of somebody else's making sees what TensorFlow's would give it.
            fetched = {"caller": fetches}
            fetched.update(zip(asked, requests[1:]))
            fetched = self._sess.run(
                fetches=fetched, feed_dict=feed_dict, options=options, run_metadata=run_metadata
            )
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
                hook.after_run(
                    context,
                    new_tuple(SessionRunValues, (results.get(id(hook)), options, run_metadata)),
                )
            elif dispatch is not None and dispatch.wanted_late(hook):
                self.call_late(hook, context, options, run_metadata)
        self._should_stop = self._should_stop or context.stop_requested
        return values[0]


cdef class Coordinated(Wrapped):
    """A session that reports to a coordinator, and stops when the coordinator does.

    Args:
      sess: the session to wrap.
      coord: a `tf.train.Coordinator`.
      stop_grace_period_secs: seconds that the coordinator's threads get to end in `close`.
    """

    def __init__(self, sess, coord, stop_grace_period_secs=120):
        Wrapped.__init__(self, sess)
        self._coord = coord
        self._stop_grace_period_secs = stop_grace_period_secs

    def _check_stop(self):
        # What made the coordinator stop, if it was an error, is raised here.
        self._coord.raise_requested_exception()
        return self._coord.should_stop()

    def close(self):
        """Stops the coordinator's threads and closes the session. Raises what one of the threads has raised."""
        self._coord.request_stop()
        try:
            self._coord.join(stop_grace_period_secs=self._stop_grace_period_secs, ignore_live_threads=True)
        finally:
            try:
                Wrapped.close(self)
            except Exception:
                pass  # What is worth knowing has been raised by join().

    def run(self, *args, **kwargs):
        """Runs one step. A preemption that stopped the coordinator is raised before an error that it led to."""
        try:
            return self._sess.run(*args, **kwargs)
        except Exception as error:
            self.raise_root_cause(error)
            raise

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step that no hook sees."""
        return self.run_native(fetches, feed_dict, False)

    cdef object run_native(self, object fetches, object feed_dict, bint hooks):
        try:
            return Wrapped.run_native(self, fetches, feed_dict, hooks)
        except Exception as error:
            self.raise_root_cause(error)
            raise

    cdef object run_failed(self, object error, object fetches, object feed_dict):
        try:
            return Wrapped.run_failed(self, error, fetches, feed_dict)
        except Exception as raised:
            self.raise_root_cause(raised)
            raise

    cdef object loop_native(self, object fetches, int64_t* left, object stop_event):
        try:
            if type(self._coord) is Coordinator and type(self._coord._stop_event) is Event:
                stop_event = self._coord._stop_event
            return Wrapped.loop_native(self, fetches, left, stop_event)
        except Exception as error:
            self.raise_root_cause(error)
            raise

    cdef int raise_root_cause(self, object error) except -1:
        cdef tuple preemptions = preemption_errors()
        if isinstance(error, preemptions):
            return 0
        try:
            self._coord.raise_requested_exception()
        except preemptions:
            raise
        except Exception:
            raise error from None
        return 0

    cdef bint stop_native(self) except -1:
        if type(self._coord) is Coordinator:
            # A coordinator with an error to raise has been stopped.
            if self._coord.should_stop() and self._check_stop():
                return True
        elif self._check_stop():
            return True
        return Wrapped.stop_native(self)


cdef class Recoverable(Wrapped):
    """A session that is made anew, and its step run again, after AbortedError and UnavailableError.

    Args:
      sess_creator: the `SessionCreator` that makes the sessions to wrap.
    """

    def __init__(self, sess_creator):
        self._sess_creator = sess_creator
        Wrapped.__init__(self, self._create_session())

    def _create_session(self):
        while True:
            try:
                return self._sess_creator.create_session()
            except preemption_errors() as error:
                logging.info(
                    "An error was raised while a session was being created. This may be due to a preemption of a "
                    "connected worker or parameter server. A new session will be created. " + ADVICE,
                    error,
                )

    def _check_stop(self):
        try:
            return self._sess._check_stop() if self._sess else True
        except preemption_errors() as error:
            self._recreate_after_check(error)
            return False
        except Exception:
            return True  # should_stop() answers, it doesn't raise: the next run does.

    def _recreate_after_check(self, error):
        logging.info(
            "An error was raised while considering whether the session is complete. This may be due to a preemption "
            "in a connected worker or parameter server. The current session will be closed and a new session will be "
            "created. " + ADVICE,
            error,
        )
        self.close()
        self._sess = self._create_session()

    cdef bint stop_native(self) except -1:
        if self._sess is None:
            return True
        if self.native_inner() is None:
            return self.should_stop()
        try:
            return self.inner.stop_native()
        except preemption_errors() as error:
            self._recreate_after_check(error)
            return False
        except Exception:
            return True

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step, again in a new session as long as it is preempted."""
        if options is None and run_metadata is None:
            return self.run_native(fetches, feed_dict, True)
        while True:
            try:
                if not self._sess:
                    self._sess = self._create_session()
                return self._sess.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)
            except preemption_errors() as error:
                self.give_up_session(error)

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step that no hook sees, again in a new session as long as it is preempted."""
        return self.run_native(fetches, feed_dict, False)

    def run_step_fn(self, step_fn, raw_session, run_with_hooks):
        """Calls a step function, again in a new session as long as it is preempted."""
        while True:
            try:
                if not self._sess:
                    self._sess = self._create_session()
                    # The session that was given is closed by now.
                    raw_session = self.raw_session()
                return self._sess.run_step_fn(step_fn, raw_session, self._sess.run)
            except preemption_errors() as error:
                self.give_up_session(error)

    cdef object run_native(self, object fetches, object feed_dict, bint hooks):
        while True:
            try:
                if self._sess is None:
                    self._sess = self._create_session()
                return Wrapped.run_native(self, fetches, feed_dict, hooks)
            except preemption_errors() as error:
                self.give_up_session(error)

    cdef object run_failed(self, object error, object fetches, object feed_dict):
        try:
            return Wrapped.run_failed(self, error, fetches, feed_dict)
        except preemption_errors() as preemption:
            self.give_up_session(preemption)
        return self.run_native(fetches, feed_dict, True)

    cdef object loop_native(self, object fetches, int64_t* left, object stop_event):
        while True:
            try:
                if self._sess is None:
                    self._sess = self._create_session()
                return Wrapped.loop_native(self, fetches, left, stop_event)
            except preemption_errors() as error:
                self.give_up_session(error)

    cdef int give_up_session(self, object error) except -1:
        logging.info(
            "An error was raised. This may be due to a preemption in a connected worker or parameter server. The "
            "current session will be closed and a new session will be created. " + ADVICE,
            error,
        )
        self.close()
        self._sess = None
        return 0


cdef class Monitored:
    """What a step passes through in `MonitoredSession` and `SingularMonitoredSession`."""

    cdef Wrapped native_inner(self):
        if self._sess is not self.inner_seen:
            self.inner_seen = self._sess
            self.inner = as_native(self._sess)
            self.middle = None
            self.innermost = None
        return self.inner

    cdef Hooked native_innermost(self):
        """The session with the hooks, if nothing but ours, as delivered, lies between: a step then starts there."""
        cdef Wrapped inner = self.native_inner()
        cdef Wrapped middle
        if self.innermost is not None and inner._sess is self.middle and self.middle._sess is self.innermost:
            return self.innermost
        self.innermost = None
        if inner is None or inner._sess is None:
            return None
        middle = inner.native_inner()
        if isinstance(inner, Recoverable) and isinstance(middle, Coordinated):
            if isinstance(middle.native_inner(), Hooked):
                self.middle = middle
                self.innermost = middle.native_inner()
        return self.innermost

    cdef object run_native(self, object fetches, object feed_dict, bint hooks):
        cdef Hooked innermost = self.native_innermost() if hooks else None
        cdef Wrapped inner = self.native_inner()
        if innermost is not None:
            try:
                return innermost.run_native(fetches, feed_dict, True)
            except Exception as error:
                return inner.run_failed(error, fetches, feed_dict)
        if inner is not None:
            return inner.run_native(fetches, feed_dict, hooks)
        if not hooks:
            return self._sess.run_without_hooks(fetches, feed_dict)
        return self._sess.run(fetches, feed_dict=feed_dict, options=None, run_metadata=None)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step with the hooks around it. Arguments and result are those of `tf.compat.v1.Session.run`."""
        if options is None and run_metadata is None:
            return self.run_native(fetches, feed_dict, True)
        return self._sess.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step that no hook sees; a preemption is recovered from as in `run`.

        Args:
          fetches: as for `tf.compat.v1.Session.run`.
          feed_dict: as for `tf.compat.v1.Session.run`.
        """
        return self.run_native(fetches, feed_dict, False)

    def should_stop(self):
        """Whether the loop should end: a hook, a thread or somebody else has asked for it, or the session is closed."""
        if self._sess is None:
            return True
        cdef Wrapped inner = self.native_inner()
        return inner.stop_native() if inner is not None else self._sess.should_stop()

    def run_loop(self, fetches, steps=None, feed_fn=None):
        """Runs step after step: the training loop itself, until `should_stop()`.

        Args:
          fetches: what to fetch in each step, as for `run`.
          steps: steps after which to return, or None for no limit but `should_stop()`.
          feed_fn: function without arguments that returns the feed_dict of a step, or None.

        Returns:
          What the last step returned; None if no step was run.

        Raises:
          ValueError: `steps` is negative.
          TypeError: `steps` is no integer, or `feed_fn` can't be called.
          Whatever `run` raises; OutOfRangeError too, which ends a `with` block normally.
        """
        cdef int64_t left = INT64_MAX
        cdef Wrapped inner
        cdef object result = None
        if steps is not None:
            if not hasattr(steps, "__index__"):
                raise TypeError(f"steps must be an integer or None, got {steps!r}.")
            left = steps.__index__()
            if left < 0:
                raise ValueError(f"steps must not be negative, got {steps!r}. Pass None to run until should_stop().")
        if feed_fn is not None and not callable(feed_fn):
            raise TypeError(f"feed_fn must be callable or None, got {feed_fn!r}.")
        cdef bint runs_itself = type(self).run is Monitored.run and "run" not in self.__dict__
        while left > 0 and not self.should_stop():
            inner = self.native_inner()
            if feed_fn is None and runs_itself and inner is not None:
                result = inner.loop_native(fetches, &left, None)
                continue
            feed_dict = None if feed_fn is None else feed_fn()
            result = self.run_native(fetches, feed_dict, True) if runs_itself else self.run(fetches, feed_dict)
            left -= 1
            PyErr_CheckSignals()
        return result
