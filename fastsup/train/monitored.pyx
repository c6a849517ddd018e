"""What a step passes through from the monitored session down to the one with the hooks."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t

from fastsup.train.hooked_session cimport Hooked
from fastsup.train.stop_signals cimport pending_signal
from fastsup.train.stop_signals import raise_if_come
from fastsup.train.wrapped_sessions cimport Coordinated, Recoverable, Wrapped, as_native


cdef class Monitored:
    """What a step passes through in `MonitoredSession` and `SingularMonitoredSession`."""

    cdef Wrapped native_inner(self):
        if self._sess is not self.inner_seen:
            session = self._sess
            # In this order: another thread goes by what it sees.
            self.innermost = None
            self.middle = None
            self.inner = as_native(session)
            self.inner_seen = session
        return self.inner

    cdef Hooked native_innermost(self):
        """The session with the hooks, if nothing but ours, as delivered, lies between: a step then starts there."""
        cdef Wrapped inner, middle
        if (
            self.innermost is not None
            and self._sess is self.inner_seen
            and self.inner._sess is self.middle
            and self.middle._sess is self.innermost
        ):
            return self.innermost
        self.innermost = None
        inner = self.native_inner()
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
        cdef Wrapped inner
        if innermost is not None:
            try:
                return innermost.run_native(fetches, feed_dict, True)
            except Exception as error:
                innermost.tell_hooks(error)
                return self.inner.run_failed(error, fetches, feed_dict)
        inner = self.native_inner()
        if inner is not None:
            return inner.run_native(fetches, feed_dict, hooks)
        if not hooks:
            return self._sess.run_without_hooks(fetches, feed_dict)
        return self._sess.run(fetches, feed_dict=feed_dict, options=None, run_metadata=None)

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """Runs one step with the hooks around it. Arguments and result are those of `tf.compat.v1.Session.run`."""
        if pending_signal():
            raise_if_come()
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
        if self._sess is None or pending_signal():
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
          Whatever `run` raises; OutOfRangeError too, which ends a `with` block normally. `last_result` then is what the
            last step that ended well returned.
        """
        cdef int64_t left = INT64_MAX
        cdef Wrapped inner = None
        cdef tuple last
        cdef object result = None
        if steps is not None:
            if not hasattr(steps, "__index__"):
                raise TypeError(f"steps must be an integer or None, got {steps!r}.")
            left = min(steps.__index__(), INT64_MAX)
            if left < 0:
                raise ValueError(f"steps must not be negative, got {steps!r}. Pass None to run until should_stop().")
        if feed_fn is not None and not callable(feed_fn):
            raise TypeError(f"feed_fn must be callable or None, got {feed_fn!r}.")
        cdef bint runs_itself = type(self).run is Monitored.run and "run" not in self.__dict__
        self.last_result = None
        try:
            while left > 0 and not self.should_stop():
                inner = self.native_inner()
                if feed_fn is None and runs_itself and inner is not None:
                    result = inner.loop_native(fetches, &left, None)
                    continue
                feed_dict = None if feed_fn is None else feed_fn()
                result = self.run_native(fetches, feed_dict, True) if runs_itself else self.run(fetches, feed_dict)
                left -= 1
                PyErr_CheckSignals()
        except BaseException:
            last = inner.last_of_loop() if inner is not None else None
            self.last_result = result if last is None else last[0]
            raise
        self.last_result = result
        return result
