"""A loop over any step function, with hooks that are called when they are due and cost nothing when they are not."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t

from fastsup.core.schedule cimport Scheduled, ScheduleTable

# How many steps another thread may have to wait for the interpreter.
cdef int64_t YIELD_STEPS = 64


cdef class LoopHook(Scheduled):
    """Something to do in a `StepLoop`, on the steps on which it says that it is due.

    A subclass overrides the callbacks, and says when it is next due with `due_at_run`, `due_at_step`, `due_at_time`
    or `due_every_run`, in `begin` for the first time and in `after_step` for each next one. It stays due until it
    says otherwise.
    """

    def begin(self, loop):
        """Called once before the first step."""

    def after_step(self, loop, value):
        """Called after each step on which the hook is due.

        Args:
          loop: the `StepLoop`.
          value: what the step function returned.
        """

    def end(self, loop):
        """Called once after the last step; not when the step function or a hook raised."""


cdef class Loop:
    """Calls a step function until it is told to stop.

    Args:
      step: a callable without arguments.
      hooks: iterable of `Hook`.
      max_steps: steps after which the loop ends, or None.
      initial_step: value of the global step before the first step.

    Raises:
      TypeError: `step` can't be called, or a hook isn't a `Hook`.
      ValueError: `max_steps` is negative.
    """

    def __init__(self, step, hooks=(), max_steps=None, initial_step=0):
        if not callable(step):
            raise TypeError(f"step must be callable, got {step!r}")
        if max_steps is not None and max_steps < 0:
            raise ValueError(f"max_steps must not be negative, got {max_steps!r}. Pass None for a loop without limit.")
        hooks = tuple(hooks)
        for hook in hooks:
            if not isinstance(hook, LoopHook):
                raise TypeError(f"hooks must be fastsup.core.Hook objects, got {hook!r}")
        self.step_function = step
        self.table = ScheduleTable(hooks)
        self.max_steps = INT64_MAX if max_steps is None else max_steps
        self.first_step = initial_step
        self.steps_done = 0
        self.stop_requested = False

    @property
    def hooks(self):
        """The hooks, in the order in which they are called."""
        return self.table.entries

    @property
    def steps(self):
        """Steps done by this loop."""
        return self.steps_done

    @property
    def global_step(self):
        """`initial_step` and the steps done since."""
        return self.first_step + self.steps_done

    def request_stop(self):
        """Ends the loop after the step that is under way."""
        self.stop_requested = True

    def should_stop(self):
        """Whether the loop was asked to stop, or has done its steps."""
        return self.stop_requested or self.steps_done >= self.max_steps

    def run(self):
        """Runs to the end: `max_steps` done, a stop requested, or StopIteration raised by the step function.

        Returns:
          What the last step returned; None if there was none.

        Raises:
          Whatever the step function or a hook raises, but for the step function's StopIteration.
        """
        cdef object value = None
        cdef object step = self.step_function
        cdef int64_t run
        for hook in self.table.entries:
            hook.begin(self)
        while not self.stop_requested and self.steps_done < self.max_steps:
            try:
                value = step()
            except StopIteration:
                break
            run = self.steps_done
            self.steps_done = run + 1
            if self.table.is_due(run, self.first_step + run + 1):
                self.call_due(run, value)
            # A loop in C otherwise never lets a signal handler run, nor, around a step in C, another thread.
            PyErr_CheckSignals()
            if run % YIELD_STEPS == 0:
                with nogil:
                    pass
        for hook in self.table.entries:
            hook.end(self)
        return value

    cdef int call_due(self, int64_t run, object value) except -1:
        cdef Py_ssize_t i
        for i in range(len(self.table.entries)):
            if self.table.entry_is_due(i, run, self.first_step + run + 1):
                self.table.entries[i].after_step(self, value)
        self.table.reload()
        return 0
