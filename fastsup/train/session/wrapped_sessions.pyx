"""The sessions that a monitored session is made of, one wrapped in the other, and what a step costs in them.

Recoverable(Coordinated(Hooked(session))). Each can be used, subclassed and replaced by itself, as TensorFlow's can:
calls then go through Python. Where they are as delivered, a step goes through them in C.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t

import sys
import time
from threading import Event

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator as tf_coordinator

from fastsup.checkpoint.durable import is_failed_save
from fastsup.common.back_off import delay_before_next_try
from fastsup.common.stop_signals import raise_if_come

cdef object Coordinator = tf_coordinator.Coordinator


cdef Call new_call(object fetches, object feed_dict, object options, object run_metadata, bint hooks) noexcept:
    """The call of one step. The caller holds the arguments for as long as it lasts."""
    return Call(
        <PyObject*> fetches, <PyObject*> feed_dict, <PyObject*> options, <PyObject*> run_metadata, hooks, NULL, NULL, NULL
    )


cdef int keep_last_result(Call* call, object result) except -1:
    """Has a call keep the result of the last step that ended well. A later one replaces it."""
    take_last_result(call)
    Py_INCREF(result)
    call.last_result = <PyObject*> result
    return 0


cdef tuple take_last_result(Call* call):
    """(result,) of the last step that ended well in a loop that has raised; None if there was none."""
    if call.last_result is NULL:
        return None
    result = <object> call.last_result
    call.last_result = NULL
    Py_DECREF(result)
    return (result,)


ADVICE = (
    "This error may also occur due to a gRPC failure caused by high memory or network bandwidth usage in the "
    "parameter servers. If this error occurs repeatedly, try increasing the number of parameter servers assigned to "
    "the job. Error: %s"
)


RUN_FAILED = (
    "An error was raised. This may be due to a preemption in a connected worker or parameter server. The current session "
    "will be closed and a new session will be created. "
)


cdef object count_in(object session, str name):
    """What the innermost session has counted: "runs_ended" or "saves_ended". None where it doesn't count."""
    while isinstance(session, Wrapped):
        session = session._sess
    return getattr(session, name, None)


cdef object monitored_session():
    """The module of the public classes: what programs replace in it is looked up when it is needed."""
    return sys.modules["fastsup.train.session.monitored_session"]


cdef tuple preemption_errors():
    """What is recovered from."""
    return tuple(monitored_session()._PREEMPTION_ERRORS)


class ClosedSessionError(RuntimeError, AttributeError):
    """A closed session was asked to run. TensorFlow's session raises RuntimeError, its monitored sessions AttributeError."""


cdef object still_open(object session):
    """The session that another one wraps; raises ClosedSessionError if it is None. Another thread may close it any time."""
    if session is None:
        raise ClosedSessionError("Attempted to use a closed Session.")
    return session


# The classes whose steps can be run in C, each before its base; the one with the hooks puts itself in front.
compiled_classes = []


cdef Wrapped as_compiled(object session):
    """The session as one whose steps can be run in C, or None if some of its methods were replaced."""
    if not isinstance(session, Wrapped):
        return None
    cdef object kind = type(session)
    cdef object replaced = getattr(session, "__dict__", ())
    for base in compiled_classes:
        if isinstance(session, base):
            break
    for name in ("run", "should_stop", "_check_stop", "run_without_hooks"):
        if getattr(kind, name) is not getattr(base, name) or name in replaced:
            return None
    return session


cdef class Wrapped:
    """Wrapped(sess)\n--\n
    A session around another one, to which it hands everything on.

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
        session = self._sess
        if session:
            return self._wrapped_is_stoppable and session.should_stop()
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
        return still_open(self._sess).run(*args, **kwargs)

    def run_step_fn(self, step_fn, raw_session, run_with_hooks):
        """Calls a step function with a StepContext. See `MonitoredSession.run_step_fn`."""
        context = monitored_session().MonitoredSession.StepContext(raw_session, run_with_hooks or self.run)
        return step_fn(context)

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step that no hook sees."""
        session = still_open(self._sess)
        if isinstance(session, Wrapped):
            return session.run_without_hooks(fetches, feed_dict)
        return session.run(fetches, feed_dict=feed_dict)

    def _sync_hooks(self):
        """Brings the state of hooks that were left out of runs up to date."""
        if isinstance(self._sess, Wrapped):
            self._sess._sync_hooks()

    cdef Wrapped compiled_inner(self):
        """The wrapped session, if steps can be run in it in C, else None."""
        if self._sess is not self.inner_seen:
            session = self._sess
            # In this order: another thread goes by what it sees.
            self.inner = as_compiled(session)
            self.inner_seen = session
        return self.inner

    cdef object step(self, Call* call):
        """Runs one step; or, in a loop, at least one, and more where nothing has to be asked between them."""
        cdef Wrapped inner = self.compiled_inner()
        if inner is not None:
            return inner.step(call)
        if not call.hooks:
            return Wrapped.run_without_hooks(self, <object> call.fetches, <object> call.feed_dict)
        result = still_open(self._sess).run(
            <object> call.fetches, feed_dict=<object> call.feed_dict, options=<object> call.options,
            run_metadata=<object> call.run_metadata,
        )
        if call.steps_left is not NULL:
            call.steps_left[0] -= 1
        return result

    cdef object on_error(self, Call* call, object error):
        """The result in spite of an error that the wrapped session's `step` has raised, or the error to raise."""
        raise error

    cdef bint is_stopped(self) except -1:
        cdef Wrapped inner
        session = self._sess
        if session is None:
            return True
        inner = self.compiled_inner()
        if inner is not None:
            return inner.is_stopped()
        return self._wrapped_is_stoppable and session.should_stop()


cdef class Coordinated(Wrapped):
    """Coordinated(sess, coord, stop_grace_period_secs=120)\n--\n
    A session that reports to a coordinator, and stops when the coordinator does.

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
            return still_open(self._sess).run(*args, **kwargs)
        except Exception as error:
            return self.on_error(NULL, error)

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step that no hook sees."""
        cdef Call call = new_call(fetches, feed_dict, None, None, False)
        return self.step(&call)

    cdef object step(self, Call* call):
        call.stop_event = NULL
        try:
            if type(self._coord) is Coordinator and type(self._coord._stop_event) is Event:
                call.stop_event = <PyObject*> self._coord._stop_event
            return Wrapped.step(self, call)
        except Exception as error:
            return self.on_error(call, error)

    cdef object on_error(self, Call* call, object error):
        """Raises the error, or the preemption that stopped the coordinator and led to it."""
        cdef tuple preemptions = preemption_errors()
        if not isinstance(error, preemptions):
            try:
                self._coord.raise_requested_exception()
            except preemptions:
                raise
            except Exception:
                raise error from None
        raise error

    cdef bint is_stopped(self) except -1:
        if type(self._coord) is Coordinator:
            # A coordinator with an error to raise has been stopped.
            if self._coord.should_stop() and self._check_stop():
                return True
        elif self._check_stop():
            return True
        return Wrapped.is_stopped(self)


cdef class Recoverable(Wrapped):
    """Recoverable(sess_creator, max_recoveries=10)\n--\n
    A session that is made anew, and its step run again, after AbortedError and UnavailableError.

    Args:
      sess_creator: the `SessionCreator` that makes the sessions to wrap.
      max_recoveries: how many failures in a row, with nothing that ran well in between, are recovered from: then the
        error is raised. Failed saves count until a save ends well, whatever steps do in between. The first recovery follows at once, the others after 0.1 seconds, 0.2 and so on to 30. None:
        without end.
    """

    def __init__(self, sess_creator, max_recoveries=10):
        if max_recoveries is not None:
            if not hasattr(max_recoveries, "__index__"):
                raise TypeError(f"max_recoveries must be an integer or None, got {max_recoveries!r}.")
            if max_recoveries < 0:
                raise ValueError(f"max_recoveries must not be negative, got {max_recoveries!r}. Pass None for no limit.")
        self._sess_creator = sess_creator
        self._max_recoveries = max_recoveries
        Wrapped.__init__(self, self._create_session())

    def _create_session(self):
        while True:
            try:
                session = self._sess_creator.create_session()
            except preemption_errors() as error:
                self.count_failure(
                    "An error was raised while a session was being created. This may be due to a preemption of a "
                    "connected worker or parameter server. A new session will be created. ",
                    error,
                )
            except Exception as error:
                # Why there had to be a new one is what matters.
                if self.lost_with is not None and error.__cause__ is None:
                    error.__cause__ = self.lost_with
                raise
            else:
                self.lost_with = None
                self.runs_ended = count_in(session, "runs_ended")
                return session

    cdef int count_failure(self, str occasion, object error) except -1:
        """Counts a failure, warns of it, and waits; or raises the error if there were too many in a row."""
        # One that came while hooks were called, which it doesn't interrupt.
        raise_if_come()
        if error is self.given_up_with:
            raise error  # It comes here again from the run that wanted a session.
        cdef bint of_a_save = is_failed_save(error)
        cdef int failures
        if of_a_save:
            self.failed_saves += 1
            failures = self.failed_saves
        else:
            self.failures += 1
            failures = self.failures
        self.lost_with = error
        limit = self._max_recoveries
        if limit is not None and failures > limit:
            logging.error(
                "Not recovering any more: %d %s. max_recoveries says how many there may be. See "
                "docs/dropin.md#sessions-and-executors.",
                failures,
                "saves in a row have failed" if of_a_save
                else "failures in a row, with nothing that ran well in between",
            )
            self.given_up_with = error
            raise error
        delay = delay_before_next_try(failures)
        logging.warning(
            occasion + ADVICE + " (Failure %d%s in a row; the next try in %g seconds.)",
            error,
            failures,
            "" if limit is None else f" of at most {limit + 1}",
            delay,
        )
        if delay > 0:
            time.sleep(delay)
        return 0

    def _check_stop(self):
        try:
            return self._sess._check_stop() if self._sess else True
        except preemption_errors() as error:
            self._recreate_after_check(error)
            return False
        except Exception:
            return True  # should_stop() answers, it doesn't raise: the next run does.

    def _recreate_after_check(self, error):
        self.give_up_session(
            "An error was raised while considering whether the session is complete. This may be due to a preemption "
            "in a connected worker or parameter server. The current session will be closed and a new session will be "
            "created. ",
            error,
        )
        self._sess = self._create_session()

    cdef bint is_stopped(self) except -1:
        if self._sess is None:
            return True
        # Held: a thread that recovers replaces the attribute.
        cdef Wrapped inner = self.compiled_inner()
        if inner is None:
            return self.should_stop()
        try:
            return inner.is_stopped()
        except preemption_errors() as error:
            self._recreate_after_check(error)
            return False
        except Exception:
            return True

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step, again in a new session as long as it is preempted."""
        cdef Call call = new_call(fetches, feed_dict, options, run_metadata, True)
        return self.step(&call)

    def run_without_hooks(self, fetches, feed_dict=None):
        """Runs one step that no hook sees, again in a new session as long as it is preempted."""
        cdef Call call = new_call(fetches, feed_dict, None, None, False)
        return self.step(&call)

    def run_step_fn(self, step_fn, raw_session, run_with_hooks):
        """Calls a step function, again in a new session as long as it is preempted."""
        while True:
            try:
                if not self._sess:
                    self._sess = self._create_session()
                    # The session that was given is closed by now.
                    raw_session = self.raw_session()
                session = still_open(self._sess)
                result = session.run_step_fn(step_fn, raw_session, session.run)
                self.failures = 0
                return result
            except preemption_errors() as error:
                self.give_up_session(RUN_FAILED, error)

    cdef object step(self, Call* call):
        while True:
            try:
                if self._sess is None:
                    self._sess = self._create_session()
                call.stop_event = NULL  # Of the coordinator of another session.
                result = Wrapped.step(self, call)
                self.failures = 0
                return result
            except preemption_errors() as error:
                self.give_up_session(RUN_FAILED, error)

    cdef object on_error(self, Call* call, object error):
        """Runs the step again in a new session if the error is a preemption. Else raises the error."""
        if not isinstance(error, preemption_errors()):
            raise error
        self.give_up_session(RUN_FAILED, error)
        return self.step(call)

    cdef int give_up_session(self, str occasion, object error) except -1:
        # Only a step that ended well ends a row of failures: a session that was made, and read a little before it failed, has
        # got nowhere.
        ended = count_in(self._sess, "runs_ended")
        if ended is not None and ended != self.runs_ended:
            self.failures = 0
        # Steps that end well between two saves don't make the disk better: only a save ends a row of failed saves.
        if count_in(self._sess, "saves_ended"):
            self.failed_saves = 0
        self.close()
        self._sess = None
        return self.count_failure(occasion, error)


compiled_classes.extend([Recoverable, Coordinated, Wrapped])
