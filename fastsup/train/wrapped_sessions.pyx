"""The sessions that a monitored session is made of, one wrapped in the other, and what a step costs in them.

Recoverable(Coordinated(Hooked(session))). Each can be used, subclassed and replaced by itself, as TensorFlow's can:
calls then go through Python. Where they are as delivered, a step goes through them in C.
"""

from libc.stdint cimport int64_t

import sys
import time
from threading import Event

from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.training import coordinator as tf_coordinator

from fastsup.train.stop_signals import raise_if_come

cdef object Coordinator = tf_coordinator.Coordinator

ADVICE = (
    "This error may also occur due to a gRPC failure caused by high memory or network bandwidth usage in the "
    "parameter servers. If this error occurs repeatedly, try increasing the number of parameter servers assigned to "
    "the job. Error: %s"
)


LONGEST_DELAY_SECS = 30.0


cdef object steps_ended(object session):
    """How many steps have ended well in the innermost session; None where it doesn't count them."""
    while isinstance(session, Wrapped):
        session = session._sess
    return getattr(session, "steps_ended", None)


cdef object monitored_session():
    """The module of the public classes: what programs replace in it is looked up when it is needed."""
    return sys.modules["fastsup.train.monitored_session"]


cdef tuple preemption_errors():
    """What is recovered from."""
    return tuple(monitored_session()._PREEMPTION_ERRORS)


# The classes whose steps can be run in C, each before its base; the one with the hooks puts itself in front.
native_kinds = []


cdef Wrapped as_native(object session):
    """The session as one whose steps can be run in C, or None if some of its methods were replaced."""
    if not isinstance(session, Wrapped):
        return None
    cdef object kind = type(session)
    cdef object replaced = getattr(session, "__dict__", ())
    for base in native_kinds:
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
            session = self._sess
            # In this order: another thread goes by what it sees.
            self.inner = as_native(session)
            self.inner_seen = session
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

    cdef int tell_hooks(self, object error) except -1:
        """Tells the hooks, wherever they are, of an error that a run has raised."""
        cdef Wrapped inner = self.native_inner()
        if inner is not None:
            inner.tell_hooks(error)
        return 0

    cdef tuple last_of_loop(self):
        """(result,) of the last step that ended well in a `loop_native` that has raised; None if there was none."""
        cdef Wrapped inner = self.native_inner()
        return None if inner is None else inner.last_of_loop()

    cdef bint stop_native(self) except -1:
        cdef Wrapped inner
        if self._sess is None:
            return True
        inner = self.native_inner()
        if inner is not None:
            return inner.stop_native()
        return self._wrapped_is_stoppable and self._sess.should_stop()


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
            self.tell_hooks(error)
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
            self.tell_hooks(error)
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
    """Recoverable(sess_creator, max_recoveries=10)\n--\n
    A session that is made anew, and its step run again, after AbortedError and UnavailableError.

    Args:
      sess_creator: the `SessionCreator` that makes the sessions to wrap.
      max_recoveries: how many failures in a row, with nothing that ran well in between, are recovered from: then the
        error is raised. The first recovery follows at once, the others after 0.1 seconds, 0.2 and so on to 30. None:
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
                self.note_failure(
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
                self.steps_ended = steps_ended(session)
                return session

    cdef int note_runs(self) except -1:
        """Something ran well if more steps have ended than there had when the session was made.

        Steps alone: a session that is made anew and read a little, before it fails again, has got nowhere.
        """
        ended = steps_ended(self._sess)
        if ended is not None and ended != self.steps_ended:
            self.failures = 0
        return 0

    cdef int note_failure(self, str occasion, object error) except -1:
        """Warns of a failure and waits, or raises the error when there were too many."""
        # One that came while hooks were called, which it doesn't interrupt.
        raise_if_come()
        if error is self.given_up_with:
            raise error  # It comes here again from the run that wanted a session.
        self.failures += 1
        self.lost_with = error
        limit = self._max_recoveries
        if limit is not None and self.failures > limit:
            logging.error(
                "Not recovering any more: %d failures in a row, with nothing that ran well in between. max_recoveries "
                "says how many there may be.", self.failures,
            )
            self.given_up_with = error
            raise error
        delay = 0.0 if self.failures == 1 else min(LONGEST_DELAY_SECS, 0.1 * 2.0 ** (self.failures - 2))
        logging.warning(
            occasion + ADVICE + " (Failure %d%s in a row; the next try in %g seconds.)",
            error,
            self.failures,
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
        self.note_runs()
        self.close()
        self.note_failure(
            "An error was raised while considering whether the session is complete. This may be due to a preemption "
            "in a connected worker or parameter server. The current session will be closed and a new session will be "
            "created. ",
            error,
        )
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
                result = self._sess.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)
                self.failures = 0
                return result
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
                result = self._sess.run_step_fn(step_fn, raw_session, self._sess.run)
                self.failures = 0
                return result
            except preemption_errors() as error:
                self.give_up_session(error)

    cdef object run_native(self, object fetches, object feed_dict, bint hooks):
        while True:
            try:
                if self._sess is None:
                    self._sess = self._create_session()
                result = Wrapped.run_native(self, fetches, feed_dict, hooks)
                self.failures = 0
                return result
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
                result = Wrapped.loop_native(self, fetches, left, stop_event)
                self.failures = 0
                return result
            except preemption_errors() as error:
                self.give_up_session(error)

    cdef int give_up_session(self, object error) except -1:
        self.note_runs()
        self.close()
        self._sess = None
        self.note_failure(
            "An error was raised. This may be due to a preemption in a connected worker or parameter server. The "
            "current session will be closed and a new session will be created. ",
            error,
        )
        return 0


native_kinds.extend([Recoverable, Coordinated, Wrapped])
