"""SecondOrStepTimer. Its results and clock reads are the same as TensorFlow's, but it decides in C."""

from libc.math cimport HUGE_VAL
from libc.stdint cimport INT64_MAX, int64_t

from fastsup.core.checks import check_number
from fastsup.core.clock cimport seconds
from fastsup.core.schedule cimport changes

cdef extern from "fastsup/timer.h":
    ctypedef enum fs_timer_answer:
        FS_TIMER_NO
        FS_TIMER_YES
        FS_TIMER_ASK_CLOCK
    fs_timer_answer fs_timer_ask_step(const fs_timer* timer, int64_t step) nogil
    bint fs_timer_time_due(const fs_timer* timer, double now) nogil

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object instance, object name, object value) except -1


cdef int64_t as_step(object step) except? -1:
    """Converts a step: an int, a NumPy integer or an array of one integer."""
    return step.__index__()


cdef class Timer:
    """Timer(every_secs=None, every_steps=None)\n--\n
    Decides at which steps an action at intervals, in seconds or steps, is due.

    An interval of 0 or less triggers at each new step. An interval of NaN triggers only once.

    Args:
      every_secs: seconds between two triggers, or None.
      every_steps: steps between two triggers, or None. Pass exactly one of the two intervals.

    Raises:
      ValueError: If both intervals are given, or neither.
      TypeError: If an interval isn't a number.
    """

    def __init__(self, every_secs=None, every_steps=None):
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        if every_secs is not None:
            check_number("every_secs", every_secs)
        else:
            check_number("every_steps", every_steps)
        self._every_secs = every_secs
        self._every_steps = every_steps
        self._last_triggered_step = None
        self._last_triggered_time = None

    def __setattr__(self, name, value):
        PyObject_GenericSetAttr(self, name, value)
        self.version += 1
        changes()[0] += 1

    # Programs written for TensorFlow read and set these four attributes. Each is kept twice: the original object, which
    # is returned, and its value in C, which decides.

    @property
    def _every_secs(self):
        return self.every_secs

    @_every_secs.setter
    def _every_secs(self, value):
        # In C, a negative number represents None. NaN, which never triggers again, becomes infinity.
        self.c.every_secs = -1.0 if value is None else HUGE_VAL if value != value else max(value, 0.0)
        self.every_secs = value

    @property
    def _every_steps(self):
        return self.every_steps

    @_every_steps.setter
    def _every_steps(self, value):
        # Steps are integers: a fraction is rounded up. Numbers beyond 64 bits, infinity and NaN are never reached.
        if value is None or value <= 0:
            self.c.every_steps = 0
        else:
            self.c.every_steps = -int(-value // 1) if value < INT64_MAX else INT64_MAX
        self.every_steps = value

    @property
    def _last_triggered_step(self):
        return self.last_step

    @_last_triggered_step.setter
    def _last_triggered_step(self, value):
        self.c.last_step = 0 if value is None else as_step(value)
        self.c.triggered = value is not None
        self.last_step = value

    @property
    def _last_triggered_time(self):
        return self.last_time

    @_last_triggered_time.setter
    def _last_triggered_time(self, value):
        self.c.last_time = 0.0 if value is None else value
        self.last_time = value

    def reset(self):
        """Forgets the last trigger, so that the timer triggers at the next step."""
        self._last_triggered_step = None
        self._last_triggered_time = None

    def should_trigger_for_step(self, step):
        """Returns True if the timer triggers at a step.

        It reads the clock only if it counts seconds and the step isn't the last trigger's.

        Args:
          step: the step, an integer.

        Returns:
          True before the first trigger, and False at the step of the last trigger. Otherwise, True if `every_steps`
          steps or `every_secs` seconds have passed since the last trigger.
        """
        cdef fs_timer_answer answer = fs_timer_ask_step(&self.c, as_step(step))
        if answer == FS_TIMER_ASK_CLOCK:
            return fs_timer_time_due(&self.c, seconds())
        return answer == FS_TIMER_YES

    def update_last_triggered_step(self, step):
        """Records a trigger at a step and at the current time.

        Args:
          step: the step, an integer.

        Returns:
          (seconds, steps) since the previous trigger; (None, None) at the first trigger.
        """
        cdef double now = seconds()
        cdef int64_t at = as_step(step)
        elapsed = (None, None) if self.last_time is None else (now - self.last_time, step - self.last_step)
        self.c.last_step = at
        self.c.triggered = True
        self.last_step = step
        self.c.last_time = now
        self.last_time = now
        self.version += 1
        changes()[0] += 1
        return elapsed

    def last_triggered_step(self):
        """Returns the step of the last trigger, or None."""
        return self.last_step

    cdef int64_t next_step(self) except? -1:
        """Returns the first step that can trigger; INT64_MAX for a timer that counts seconds."""
        if not self.c.triggered:
            return 0
        if self.every_steps is None:
            return INT64_MAX
        if self.c.last_step > INT64_MAX - self.c.every_steps:
            return INT64_MAX
        return self.c.last_step + self.c.every_steps

    cdef double next_time(self) except? -1.0:
        """Returns the first time that can trigger, in seconds since the epoch; HUGE_VAL if the timer counts steps."""
        if self.every_secs is None:
            return HUGE_VAL
        if not self.c.triggered:
            return 0.0
        return self.c.last_time + self.c.every_secs
