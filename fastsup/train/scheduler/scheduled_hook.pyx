"""A session-run hook that says when it must next be called, so that a session can leave it out until then."""

from libc.math cimport HUGE_VAL, isnan
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memcmp

import numpy

from fastsup.core.schedule cimport Scheduled, changes, fs_due
from fastsup.core.timer cimport Timer

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1

# What a program assigns to put other callbacks in the place of a hook's.
cdef frozenset replaced_by_programs = frozenset(["before_run", "after_run", "__class__"])

cdef object floating = numpy.floating
cdef object timer_decision = Timer.should_trigger_for_step

# For each class that defines a schedule, the callbacks that the schedule was written for. A program may replace these on
# the class later: then the schedule is void.
cdef dict original_callbacks = {}


cdef tuple callbacks_of(object kind):
    """The callbacks, (before_run, after_run), that the schedule of a hook's class was written for; None without schedule."""
    for base in kind.__mro__:
        if base in original_callbacks:
            return original_callbacks[base]
    return None


cdef class ScheduledHookBase(Scheduled):
    """The compiled part of ScheduledHook: the schedule, in addition to TensorFlow's callbacks.

    The callbacks (`before_run`, `after_run`) do the same as TensorFlow's, called in every run or only in those in
    which they do something. A session that knows schedules asks for the latter with the methods below; any other
    session just calls them in every run.
    """

    # The attributes of TensorFlow's hook that the schedule is computed from. Programs set them: the session then asks for the
    # schedule again.
    _schedule_reads = frozenset()

    def _reschedule(self):
        """Has the session ask for the schedule again. To be called after a change of anything else that it is computed from."""
        self.version += 1
        changes()[0] += 1

    def _schedule(self, run, step_read):
        """Sets the due positions from the hook's state.

        Args:
          run: number of the coming run, counted from 0.
          step_read: the tensor that the graph's global step is read from.

        Returns:
          False if the hook has to be called in every run, because it was changed into something unforeseen.
        """
        return False

    def _sync(self, skipped_runs, previous_step):
        """Brings the state up to date after runs in which the hook was left out.

        Args:
          skipped_runs: how many runs those were.
          previous_step: the global step before the last of them.
        """

    def _before_end(self):
        """Called when the loop has ended, on every way out, before any hook's `end`. Not in all sessions."""

    def _before_close(self):
        """Called right before the session is closed, on every way out: after `end`, if that is called."""

    def _watch(self, fetch):
        """Has `fetch` fetched in every run, and the hook called after those in which it is NaN, or no number."""
        self.watched_fetch = fetch

    cdef bint accepts(self, object value) except -1:
        """Whether the value of the watched fetch needs no call of `after_run`."""
        return isinstance(value, floating) and not isnan(<double> value)

    def _follow(self, Scheduled other):
        """Has the schedule computed again when the due positions of another object change."""
        self.followed = other

    def _decide_on_coming_step(self):
        """Says that an in-run hook decides on the step that the run leads to, and not as TensorFlow's hooks do."""
        self.by_coming_step = True

    def _watch_stall(self):
        """Has an after-run hook called also after a run before which the global step has not moved."""
        self.watches_stall = True

    def _decide_after_run(self, on_true_step=False):
        """Says that the hook decides after the run whether to act, and wants nothing of the run but the global step.

        Its `before_run` isn't called then. Its `after_run` gets the step before the run as result.

        Args:
          on_true_step: whether it decides on the global step after the run; else on the one before it, plus 1.
        """
        self.is_after_run = True
        self.needs_true_step = on_true_step

    cdef int clear_schedule(self) except -1:
        self.never_due()
        self.watched_fetch = None
        self.is_after_run = self.watches_stall = self.needs_true_step = self.by_coming_step = False
        return 0

    def _due_with_timer(self, timer):
        """Sets the due positions from a timer.

        Args:
          timer: the hook's timer.

        Returns:
          False for a timer of another class, whose answers can't be foreseen.
        """
        if not isinstance(timer, Timer) or type(timer).should_trigger_for_step is not timer_decision:
            return False
        if "should_trigger_for_step" in timer.__dict__:
            return False
        cdef double time = (<Timer> timer).next_time()
        cdef int64_t step = (<Timer> timer).next_step()
        if time != HUGE_VAL:
            self.due_at_time(time)
        elif step != INT64_MAX:
            self.due_at_step(step)
        return True

    def __setattr__(self, name, value):
        PyObject_GenericSetAttr(self, name, value)
        if name in replaced_by_programs or name in self._schedule_reads:
            self._reschedule()

    cdef bint is_current(self) except -1:
        """Whether nothing has changed, here or in the timer, since `set_current`. False if that can't be told."""
        if self.version != self.scheduled_version or not self.follows():
            return False
        timer = getattr(self, "_timer", None)
        if timer is not self.scheduled_timer:
            return False
        if timer is None:
            return True
        return isinstance(timer, Timer) and (<Timer> timer).version == self.scheduled_timer_version

    cdef bint follows(self) noexcept:
        """Whether the followed object is due at what the schedule was computed from."""
        return self.followed is None or memcmp(&self.followed.due, &self.followed_due, sizeof(fs_due)) == 0

    cdef int set_current(self) except -1:
        """Says that the schedule was computed from how everything is now."""
        if self.followed is not None:
            self.followed_due = self.followed.due
        self.scheduled_timer = getattr(self, "_timer", None)
        self.scheduled_version = self.version
        if isinstance(self.scheduled_timer, Timer):
            self.scheduled_timer_version = (<Timer> self.scheduled_timer).version
        return 0


class ScheduledHook(ScheduledHookBase):
    """Base of the standard hooks.

    A class that defines `_schedule` says that the schedule is right for the callbacks that the class has when it is
    defined. A subclass that overrides a callback, and defines no schedule, is called in every run.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "_schedule" in cls.__dict__:
            original_callbacks[cls] = (getattr(cls, "before_run", None), getattr(cls, "after_run", None))
